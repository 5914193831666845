//! Whether a transaction of the stream is new, seen before, or claims a place that other content has.
//!
//! Decided at its Begin, from durable facts: the position recorded and what the window keeps of each transaction.
//! What was seen before is skipped only after its xid, its count of messages and their digest were compared.

use crate::event::digest::TransactionDigest;
use crate::lsn::{Lsn, Xid};
use crate::progress::{Counted, Split};
use crate::store::transactions::TransactionRecord;

/// The same place in the stream, other content: never skipped, never applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the transaction at {commit_lsn} is not the one delivered from there before: {why}")]
pub struct Conflict {
    pub commit_lsn: Lsn,
    pub why: String,
}

/// A transaction under way.
#[derive(Clone)]
pub struct Transaction {
    pub commit_lsn: Lsn,
    pub xid: Xid,
    /// As the server sent it: microseconds since 2000-01-01.
    pub commit_time: i64,
    /// Messages that have come: the next one's ordinal.
    pub ordinal: u64,
    digest: TransactionDigest,
    verdict: Verdict,
}

#[derive(Clone, Debug)]
enum Verdict {
    Fresh,
    /// Delivered up to an ordinal; the messages before it have to be the same.
    Resumed(Split),
    /// Delivered whole.
    Repeated(TransactionRecord),
}

impl Transaction {
    /// Admits the transaction of a Begin. `end_lsn` and `split` are the position recorded, `known` is what the
    /// window has of this commit LSN.
    ///
    /// # Errors
    /// It lies behind the position and is not the transaction that was delivered from there.
    pub fn begin(
        (commit_lsn, xid, commit_time): (Lsn, Xid, i64),
        end_lsn: Lsn,
        split: Option<&Split>,
        known: Option<TransactionRecord>,
    ) -> Result<Self, Conflict> {
        let conflict = |why: String| Conflict { commit_lsn, why };
        let verdict = match (split.filter(|split| split.commit_lsn == commit_lsn), known) {
            (Some(split), _) if split.xid == xid => Verdict::Resumed(split.clone()),
            (Some(split), _) => return Err(conflict(format!("its xid is {xid}, that of the part delivered was {}", split.xid))),
            (None, _) if commit_lsn >= end_lsn => match split {
                // The stream is the same only if it goes on with that one.
                Some(split) => {
                    return Err(conflict(format!("the one at {}, of which a part was delivered, has not come again", split.commit_lsn)));
                }
                None => Verdict::Fresh,
            },
            (None, Some(known)) if known.xid == xid => Verdict::Repeated(known),
            (None, Some(known)) => return Err(conflict(format!("its xid is {xid}, it was {}", known.xid))),
            (None, None) => return Err(conflict(format!("it lies before {end_lsn} and nothing is kept of it"))),
        };
        Ok(Self { commit_lsn, xid, commit_time, ordinal: 0, digest: TransactionDigest::new(), verdict })
    }

    /// Counts a message. Gives its ordinal where it is to be delivered, `None` where it was.
    ///
    /// # Errors
    /// The part delivered before was other content.
    pub fn message(&mut self, message: &[u8]) -> Result<Option<u64>, Conflict> {
        let ordinal = self.ordinal;
        if let Verdict::Resumed(split) = &self.verdict
            && ordinal == split.ordinals
            && format!("{:032x}", self.digest.value()) != split.digest
        {
            return Err(Conflict { commit_lsn: self.commit_lsn, why: format!("its first {ordinal} changes have another digest") });
        }
        self.ordinal += 1;
        self.digest.update(message);
        Ok(match &self.verdict {
            Verdict::Fresh => Some(ordinal),
            Verdict::Resumed(split) => (ordinal >= split.ordinals).then_some(ordinal),
            Verdict::Repeated(_) => None,
        })
    }

    /// What is delivered so far, for a batch that ends inside the transaction.
    #[must_use]
    pub fn split(&self) -> Split {
        let digest = format!("{:032x}", self.digest.value());
        Split { commit_lsn: self.commit_lsn, xid: self.xid, ordinals: self.ordinal, digest, deleted: 0, counted: Counted::default() }
    }

    /// Whether its messages are being delivered now.
    #[must_use]
    pub fn delivers(&self) -> bool {
        !matches!(self.verdict, Verdict::Repeated(_))
    }

    /// At its Commit: what the window is to keep of it; `None` where it keeps it already.
    ///
    /// # Errors
    /// It was delivered before with other content, or less of it came than was delivered.
    pub fn commit(self) -> Result<Option<TransactionRecord>, Conflict> {
        let record =
            TransactionRecord { xid: self.xid, messages: self.ordinal, digest: self.digest.value(), commit_time_us: self.commit_time };
        let conflict = |why: String| Conflict { commit_lsn: self.commit_lsn, why };
        match self.verdict {
            Verdict::Fresh => Ok(Some(record)),
            Verdict::Resumed(split) if self.ordinal < split.ordinals => {
                Err(conflict(format!("it has {} changes, of which {} were delivered", self.ordinal, split.ordinals)))
            }
            Verdict::Resumed(split) if self.ordinal == split.ordinals && format!("{:032x}", record.digest) != split.digest => {
                Err(conflict("its changes have another digest".to_owned()))
            }
            Verdict::Resumed(_) => Ok(Some(record)),
            Verdict::Repeated(known) if (known.messages, known.digest) == (record.messages, record.digest) => Ok(None),
            Verdict::Repeated(known) => {
                Err(conflict(format!("it has {} changes, it had {}, or their digest differs", record.messages, known.messages)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Lsn = Lsn::new(100);

    fn begin(lsn: u64, xid: u32, split: Option<&Split>, known: Option<TransactionRecord>) -> Result<Transaction, Conflict> {
        Transaction::begin((Lsn::new(lsn), Xid::new(xid), 0), END, split, known)
    }

    fn record(messages: &[&[u8]]) -> TransactionRecord {
        let mut transaction = begin(100, 7, None, None).unwrap();
        for message in messages {
            transaction.message(message).unwrap();
        }
        transaction.commit().unwrap().unwrap()
    }

    #[test]
    fn what_lies_at_or_past_the_position_is_fresh() {
        let mut transaction = begin(100, 7, None, None).unwrap();
        assert_eq!(transaction.message(b"a").unwrap(), Some(0));
        assert_eq!(transaction.message(b"b").unwrap(), Some(1));
        assert_eq!(transaction.commit().unwrap().unwrap().messages, 2);
    }

    #[test]
    fn a_repeated_transaction_is_skipped_only_when_it_is_the_same() {
        let known = record(&[b"a", b"b"]);
        let again = |messages: &[&[u8]]| {
            let mut transaction = begin(99, 7, None, Some(known)).unwrap();
            for message in messages {
                assert_eq!(transaction.message(message).unwrap(), None);
            }
            transaction.commit()
        };
        assert_eq!(again(&[b"a", b"b"]), Ok(None));
        assert!(again(&[b"a", b"c"]).is_err());
        assert!(again(&[b"a"]).is_err());
        assert!(begin(99, 8, None, Some(known)).is_err(), "another xid");
        assert!(begin(99, 7, None, None).is_err(), "nothing is kept of it");
    }

    #[test]
    fn a_split_transaction_goes_on_at_its_ordinal_with_the_same_prefix_only() {
        let mut first = begin(100, 7, None, None).unwrap();
        first.message(b"a").unwrap();
        let split = first.split();
        let resumed = |messages: &[&[u8]]| -> Result<Vec<Option<u64>>, Conflict> {
            let mut transaction = begin(100, 7, Some(&split), None)?;
            let ordinals = messages.iter().map(|message| transaction.message(message)).collect::<Result<_, _>>()?;
            transaction.commit()?;
            Ok(ordinals)
        };
        assert_eq!(resumed(&[b"a", b"b"]), Ok(vec![None, Some(1)]));
        assert_eq!(resumed(&[b"a"]), Ok(vec![None]));
        assert!(resumed(&[b"x", b"b"]).is_err());
        assert!(resumed(&[b"x"]).is_err());
        assert!(resumed(&[]).is_err());
        assert!(begin(100, 8, Some(&split), None).is_err());
        assert!(begin(101, 8, Some(&split), None).is_err(), "it has not come again");
    }
}
