//! The Kafka brokers: whether they can be reached, and whether the stream's topics are there or can be made.

use rdkafka::types::RDKafkaErrorCode;

use crate::cli::check::{Area, Finding};
use crate::config::{Config, Kafka};
use crate::sink::SinkError;
use crate::sink::kafka::progress_topic;
use crate::sink::kafka::survey::{self, Found, Survey};
use crate::telemetry::Chain;

/// What is found. `topics` are those of the published tables, as far as the source told.
pub(super) fn look(config: &Config, kafka: &Kafka, topics: &[String]) -> Vec<Finding> {
    match survey::survey(config, kafka, topics) {
        Ok(seen) => judge(config, kafka, &seen),
        Err(error) => vec![failed(config, kafka, &error)],
    }
}

fn failed(config: &Config, kafka: &Kafka, error: &SinkError) -> Finding {
    let finding = Finding::fault(Area::Sink, Chain(error).to_string());
    match error {
        SinkError::Kafka { fault, .. } if is_about_rights(fault.code()) => {
            finding.mended_by(survey::rights_commands(config, kafka).join("; "))
        }
        SinkError::Kafka { fault, .. } => finding.mended_by(fault.advice()),
        _ => finding,
    }
}

fn is_about_rights(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::ClusterAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::TransactionalIdAuthorizationFailed
    )
}

fn judge(config: &Config, kafka: &Kafka, seen: &Survey) -> Vec<Finding> {
    let prefix = &config.sink.topic_prefix;
    let mut findings = vec![Finding::ok(Area::Sink, format!("the brokers `{}` answer; topics are `{prefix}.*`", kafka.brokers))];
    findings.push(match &seen.stream {
        Some(stream) if *stream != config.stream => {
            Finding::fault(Area::Sink, format!("the topics `{prefix}.*` hold the events of stream `{stream}`"))
                .mended_by("set `sink.topic_prefix` to one of this stream's own")
        }
        Some(_) => Finding::ok(Area::Sink, "the progress record is that of this stream"),
        None => Finding::ok(Area::Sink, "nothing was delivered yet"),
    });
    let progress = (progress_topic(prefix), &seen.progress);
    let topics = seen.topics.iter().map(|(topic, found)| (topic.clone(), found));
    let (mut present, mut missing) = (0, 0);
    for (topic, found) in std::iter::once(progress).chain(topics) {
        match found {
            Found::Present => present += 1,
            Found::Missing => missing += 1,
            _ => findings.push(judge_topic(config, kafka, &topic, found)),
        }
    }
    findings.push(Finding::ok(Area::Sink, format!("topics of tables and progress: {present} are there, {missing} will be made")));
    if kafka.client.0.get("security.protocol").is_some_and(|protocol| !protocol.eq_ignore_ascii_case("plaintext")) {
        // Whether we may write is known once we do.
        findings.push(
            Finding::ok(Area::Sink, "the rights to write are not looked at; these commands give all that are needed")
                .mended_by(survey::rights_commands(config, kafka).join("; ")),
        );
    }
    findings
}

fn judge_topic(config: &Config, kafka: &Kafka, topic: &str, found: &Found) -> Finding {
    match found {
        Found::Present | Found::Missing => Finding::ok(Area::Sink, format!("the topic `{topic}` is there, or will be made")),
        Found::OtherPartitions { recorded, found } => {
            Finding::fault(Area::Sink, format!("the topic `{topic}` has {found} partitions, its keys were sent to {recorded}"))
                .mended_by("delete the topic: it is made again and sent anew")
        }
        Found::Unfit => Finding::fault(Area::Sink, format!("the topic `{topic}` has to be compacted and of one partition"))
            .mended_by(survey::make_command(config, kafka, topic)),
        Found::NotToBeMade(error) => {
            let finding = Finding::fault(Area::Sink, format!("the topic `{topic}` cannot be made: {}", Chain(error)));
            match error {
                SinkError::Kafka { fault, .. } if fault.code() == RDKafkaErrorCode::InvalidReplicationFactor => {
                    finding.mended_by(fault.advice())
                }
                _ => finding.mended_by(survey::make_command(config, kafka, topic)),
            }
        }
    }
}
