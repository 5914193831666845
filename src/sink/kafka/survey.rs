//! What the brokers say before a stream begins: asked without changing anything, for `walgate check`.

use crate::admin::board::Board;
use crate::config::{Config, Kafka};
use crate::sink::SinkError;
use crate::sink::kafka::client::Clients;
use crate::sink::kafka::look::Look;
use crate::sink::kafka::topics::Use;
use crate::sink::kafka::waiting::Waiting;
use crate::sink::kafka::{progress_topic, records};

/// What was found.
#[derive(Debug)]
pub struct Survey {
    pub progress: Found,
    /// The stream that the progress record is of; `None`: there is no record.
    pub stream: Option<String>,
    /// Each table's topic, by name.
    pub topics: Vec<(String, Found)>,
}

/// A topic.
#[derive(Debug)]
pub enum Found {
    /// As it has to be.
    Present,
    /// Its partitions differ from those that keys were sent to.
    OtherPartitions { recorded: i32, found: i32 },
    /// Of the progress records only: it is not compacted, or has several partitions.
    Unfit,
    /// walgate will make it.
    Missing,
    /// walgate may not make it.
    NotToBeMade(SinkError),
}

/// Asks the brokers. `topics` are those of tables.
///
/// # Errors
/// They do not answer, or refuse to.
pub fn survey(config: &Config, kafka: &Kafka, topics: &[String]) -> Result<Survey, SinkError> {
    let clients = Clients::new(kafka.clone(), &config.sink.topic_prefix, &config.stream);
    let look = Look::new(&clients, kafka)?;
    let name = progress_topic(&config.sink.topic_prefix);
    let could_make = |name: &str, of| look.could_make(&[(name, of)]).map_or_else(Found::NotToBeMade, |()| Found::Missing);
    let mut recorded = records::Found::default();
    let progress = match look.partitions(&name)? {
        None => could_make(&name, Use::Progress),
        Some(partitions) => {
            let is_compacted = look.settings(&[&name])?.get(&name).is_none_or(|settings| settings.is_compacted);
            let board = Board::default();
            recorded = records::read(&clients, look.consumer(), &name, &mut Waiting::begin(&board))?;
            if partitions == 1 && is_compacted { Found::Present } else { Found::Unfit }
        }
    };
    let of_table = |topic: &String| {
        let found = match (look.partitions(topic)?, recorded.ends.get(topic).map(|ends| ends.partitions).filter(|count| *count > 0)) {
            (None, _) => could_make(topic, Use::Keyed),
            (Some(found), Some(recorded)) if found != recorded => Found::OtherPartitions { recorded, found },
            (Some(_), _) => Found::Present,
        };
        Ok((topic.clone(), found))
    };
    let topics = topics.iter().map(of_table).collect::<Result<_, SinkError>>()?;
    Ok(Survey { progress, stream: recorded.stream.and_then(|record| record.progress).map(|progress| progress.stream), topics })
}

/// The command of Kafka's own tools that makes a topic as walgate would.
#[must_use]
pub fn make_command(config: &Config, kafka: &Kafka, topic: &str) -> String {
    let of = if topic == progress_topic(&config.sink.topic_prefix) { Use::Progress } else { Use::Keyed };
    let recipe = of.recipe(kafka);
    let settings: Vec<String> = recipe.config.iter().map(|(key, value)| format!("--config {key}={value}")).collect();
    format!(
        "kafka-topics.sh --bootstrap-server {} --create --topic {topic} --partitions {} --replication-factor {} {}",
        kafka.brokers,
        recipe.partitions,
        recipe.replication,
        settings.join(" ")
    )
}

/// The commands that give the stream's user the rights that it needs, and no more.
#[must_use]
pub fn rights_commands(config: &Config, kafka: &Kafka) -> [String; 2] {
    let prefix = &config.sink.topic_prefix;
    let user = kafka.client.0.get("sasl.username").map_or("…", String::as_str);
    let add = format!("kafka-acls.sh --bootstrap-server {} --add --allow-principal User:{user}", kafka.brokers);
    [
        format!(
            "{add} --operation Create --operation Write --operation Read --operation DescribeConfigs --topic {prefix}. --resource-pattern-type prefixed"
        ),
        format!("{add} --operation Write --transactional-id {prefix}.{}", config.stream),
    ]
}
