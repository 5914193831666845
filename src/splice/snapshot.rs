//! A snapshot in PostgreSQL's text form (`pg_snapshot`), and which transactions it sees.

use std::fmt;
use std::str::FromStr;

use crate::lsn::Xid;

/// `xmin:xmax:xip`, 64-bit transaction ids. Only top-level ids may be asked for: a subtransaction that is
/// still open counts as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    xmin: u64,
    xmax: u64,
    /// In progress, ascending.
    xip: Vec<u64>,
}

impl Snapshot {
    /// Everything below was over when it was taken.
    #[must_use]
    pub fn xmin(&self) -> u64 {
        self.xmin
    }

    /// Whether the transaction had committed or rolled back visibly when the snapshot was taken.
    #[must_use]
    pub fn sees(&self, xid: Xid) -> bool {
        self.sees_wide(xid.widen(self.xmax))
    }

    fn sees_wide(&self, xid: u64) -> bool {
        xid < self.xmin || xid < self.xmax && self.xip.binary_search(&xid).is_err()
    }

    /// Whether it sees every transaction that `earlier` sees.
    #[must_use]
    pub fn sees_all_of(&self, earlier: &Self) -> bool {
        // Only what is in progress here, or began since, can be missing.
        self.xip.iter().copied().chain(self.xmax..earlier.xmax).all(|xid| !earlier.sees_wide(xid))
    }
}

/// The text is no snapshot.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a snapshot of the form `xmin:xmax:xip`")]
pub struct ParseSnapshotError(String);

impl FromStr for Snapshot {
    type Err = ParseSnapshotError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let mut fields = text.split(':');
            let xmin = fields.next()?.parse().ok()?;
            let xmax = fields.next()?.parse().ok()?;
            let xip = fields.next()?.split(',').filter(|xid| !xid.is_empty()).map(|xid| xid.parse().ok()).collect::<Option<Vec<u64>>>()?;
            (fields.next().is_none() && xmin <= xmax && xip.is_sorted()).then_some(Self { xmin, xmax, xip })
        };
        parse().ok_or_else(|| ParseSnapshotError(text.to_owned()))
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.xmin, self.xmax)?;
        for (index, xid) in self.xip.iter().enumerate() {
            write!(f, "{}{xid}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        text.parse().unwrap()
    }

    #[test]
    fn it_prints_what_it_parses_and_refuses_the_rest() {
        for text in ["739:739:", "10:20:10,14,15"] {
            assert_eq!(snapshot(text).to_string(), text);
        }
        for text in ["", "1", "1:2", "2:1:", "1:2:x", "1:5:3,2", "1:2:1:1"] {
            assert!(text.parse::<Snapshot>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_transaction_in_the_gap_is_not_seen() {
        let taken = snapshot("10:20:10,14");
        for (xid, seen) in [(9, true), (10, false), (11, true), (14, false), (19, true), (20, false), (21, false)] {
            assert_eq!(taken.sees(Xid::new(xid)), seen, "{xid}");
        }
    }

    #[test]
    fn a_32_bit_xid_is_compared_in_its_epoch() {
        let taken = snapshot("30064771800:30064771807:");
        assert!(!taken.sees(Xid::new(735)), "735 of epoch 7 is in progress or to come");
        assert!(!taken.sees(Xid::new(736)));
    }

    #[test]
    fn seeing_all_of_another_looks_at_what_is_missing_only() {
        let exported = snapshot("759:760:");
        assert!(!snapshot("759:759:").sees_all_of(&exported), "759 committed in the log and is not visible yet");
        assert!(snapshot("760:760:").sees_all_of(&exported));
        assert!(!snapshot("759:765:759,762").sees_all_of(&exported));
        assert!(snapshot("762:765:762").sees_all_of(&exported));
    }
}
