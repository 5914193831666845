//! What went wrong at a broker, and what follows: one table by the client's flags and codes.
//!
//! A code alone says little. A wrong password is a time-out whose reason only the error callback knew; a fenced producer
//! was fenced by another instance or by the broker's own time-out. So a fault keeps the flags and the last text that
//! the callback gave.

use std::fmt;

use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode as Code;

/// An error of the client library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaFault {
    code: Code,
    text: String,
    /// The producer is of no use any more.
    is_fatal: bool,
    /// The same call may be made again.
    is_retriable: bool,
    /// The transaction has to be aborted.
    requires_abort: bool,
    /// What the client reported last of its connections, with its code.
    reported: Option<(Code, String)>,
}

/// What follows from a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Make the same call again.
    Again,
    /// The outcome is not known; a new producer settles it.
    Replace,
    /// Another producer has this one's id, or the broker's patience ended: the progress record tells which.
    Fenced,
    /// No attempt changes it.
    Stop,
}

impl KafkaFault {
    #[must_use]
    pub fn new(error: &KafkaError) -> Self {
        let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
        let mut fault = Self::of_code(code, error.to_string());
        if let KafkaError::Transaction(error) = error {
            fault.is_fatal = error.is_fatal();
            fault.is_retriable = error.is_retriable();
            fault.requires_abort = error.txn_requires_abort();
            fault.text = error.string();
        }
        // The commit itself was not sent by this call.
        fault.is_retriable |= matches!(error, KafkaError::Flush(_));
        if matches!(error, KafkaError::ClientCreation(_) | KafkaError::ClientConfig(..)) {
            fault.code = Code::InvalidArgument;
        }
        fault
    }

    /// Of a delivery or an administrative request, which have no flags.
    #[must_use]
    pub fn of_code(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), is_fatal: false, is_retriable: false, requires_abort: false, reported: None }
    }

    /// With what the error callback said last.
    #[must_use]
    pub fn reported(self, reported: Option<(Code, String)>) -> Self {
        Self { reported, ..self }
    }

    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// What the client reported last of its connections.
    #[must_use]
    pub fn last_report(&self) -> Option<&(Code, String)> {
        self.reported.as_ref()
    }

    /// The code of what the client reported last. A certificate that a broker does not take is told after the handshake, as any
    /// loss of a connection is: only the text has it.
    fn told(&self) -> Option<Code> {
        self.reported.as_ref().map(|(code, text)| if text.contains("SSL routines") { Code::SSL } else { *code })
    }

    fn is_about_tokens(&self) -> bool {
        self.reported.as_ref().is_some_and(|(_, text)| text.contains("OAUTHBEARER"))
    }

    /// The table.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self.code {
            Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch => Verdict::Fenced,
            // A late request may have committed a part of the transaction that was open: a person has to know.
            Code::InvalidTransactionalState
            | Code::InvalidTransactionTimeout
            | Code::InvalidReplicationFactor
            | Code::InvalidPartitions
            | Code::InvalidConfig
            | Code::InvalidArgument
            | Code::PolicyViolation
            | Code::InvalidTopic
            | Code::InvalidRecord
            | Code::UnsupportedVersion
            | Code::UnsupportedFeature
            | Code::UnsupportedSASLMechanism => Verdict::Stop,
            // What the client may repeat, it repeats; once a transaction has to be aborted, a new producer does it.
            _ if self.is_retriable && !self.requires_abort && !self.is_fatal => Verdict::Again,
            _ => Verdict::Replace,
        }
    }

    /// Whether nobody answers, as opposed to somebody who answers no.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        let about_reaching = |code| {
            matches!(
                code,
                Code::BrokerTransportFailure
                    | Code::AllBrokersDown
                    | Code::OperationTimedOut
                    | Code::MessageTimedOut
                    | Code::RequestTimedOut
                    | Code::TimedOutQueue
                    | Code::Resolve
                    | Code::NetworkException
                    | Code::BrokerNotAvailable
                    | Code::LeaderNotAvailable
                    | Code::CoordinatorNotAvailable
                    | Code::CoordinatorLoadInProgress
                    | Code::NotCoordinator
                    | Code::ConcurrentTransactions
            )
        };
        about_reaching(self.code) && self.told().is_none_or(about_reaching)
    }

    /// The operator's next step.
    #[must_use]
    pub fn advice(&self) -> &'static str {
        let told = self.told().unwrap_or(self.code);
        match (self.code, told) {
            (Code::InvalidTransactionalState, _) => {
                "a part of a transaction may be visible to readers: look at what stands between here and the brokers, compare with the tables, then start again"
            }
            (Code::InvalidTransactionTimeout, _) => {
                "lower `sink.kafka.transaction_timeout`, or raise the brokers' `transaction.max.timeout.ms`"
            }
            (Code::InvalidReplicationFactor, _) => "lower `sink.kafka.replication` to the number of brokers",
            (Code::InvalidPartitions, _) => "correct `sink.kafka.partitions`",
            (Code::InvalidConfig | Code::PolicyViolation, _) => "correct `sink.kafka.topic_config`, or make the topic by hand",
            (Code::InvalidArgument | Code::UnsupportedSASLMechanism, _) => "correct `sink.kafka.client`",
            (Code::InvalidRecord, _) => "the topic takes no record without a key: set its `cleanup.policy` to `delete`",
            (Code::UnsupportedVersion | Code::UnsupportedFeature, _) => "the brokers are too old for transactions of this client",
            (Code::TransactionalIdAuthorizationFailed, _) => "allow Write on the transactional id: `walgate check` prints the command",
            (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed | Code::GroupAuthorizationFailed, _) => {
                "allow what is missing: `walgate check` prints the commands"
            }
            (_, Code::Authentication | Code::SaslAuthenticationFailed) if self.is_about_tokens() => {
                "correct the `sasl.oauthbearer.` keys of `sink.kafka.client`, and look whether the issuer of tokens can be reached"
            }
            (_, Code::Authentication | Code::SaslAuthenticationFailed) => {
                "correct user and password in `sink.kafka.client` and `sink.kafka.password_file`"
            }
            (_, Code::SSL) => {
                "correct the `ssl.` keys of `sink.kafka.client`: the certificate of the broker is not accepted, or ours by it"
            }
            (_, Code::Resolve) => "correct the names in `sink.kafka.brokers`",
            _ => "look whether the brokers in `sink.kafka.brokers` run and can be reached, and at their logs",
        }
    }
}

impl fmt::Display for KafkaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.text, self.code)?;
        match &self.reported {
            Some((_, text)) => write!(f, "; the client's last report: {text}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for KafkaFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_decide_where_the_code_alone_is_ambiguous() {
        let fault = |is_retriable, requires_abort| KafkaFault {
            is_retriable,
            requires_abort,
            ..KafkaFault::of_code(Code::OperationTimedOut, "timed out")
        };
        assert_eq!(fault(true, false).verdict(), Verdict::Again);
        assert_eq!(fault(false, true).verdict(), Verdict::Replace);
        assert_eq!(fault(true, true).verdict(), Verdict::Replace);
        assert_eq!(KafkaFault::of_code(Code::Fenced, "").verdict(), Verdict::Fenced);
        assert_eq!(KafkaFault::of_code(Code::InvalidTransactionalState, "").verdict(), Verdict::Stop);
    }

    #[test]
    fn a_wrong_password_is_no_silence_and_is_named() {
        let fault = KafkaFault::of_code(Code::OperationTimedOut, "timed out");
        assert!(fault.is_silence());
        let fault = fault.reported(Some((Code::Authentication, "SASL authentication error".to_owned())));
        assert!(!fault.is_silence());
        assert!(fault.advice().contains("password"));
        assert!(fault.to_string().ends_with("SASL authentication error"));
        let alert = "Receive failed: error:0A000412:SSL routines::sslv3 alert bad certificate".to_owned();
        let fault = fault.reported(Some((Code::BrokerTransportFailure, alert)));
        assert!(!fault.is_silence());
        assert!(fault.advice().contains("`ssl.` keys"));
    }
}
