//! The comparison that decides what a row read from a table becomes, given what subscribers hold.

use crate::event::digest::RowDigest;
use crate::rebuild::journal::Mode;
use crate::store::rows::RowEntry;

/// What to send for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// `r`
    Read,
    /// `u`
    Update,
    /// Subscribers hold it; the index entry is brought to the epoch.
    Equal,
    /// Subscribers hold it and the entry is better left as it is.
    Leave,
}

/// Compares a row, complete as of the boundary, with its index entry as of every event placed before.
#[must_use]
pub fn placement(mode: Mode, epoch: u64, entry: Option<&RowEntry>, digest: &RowDigest) -> Placement {
    let Some(entry) = entry else {
        return match mode {
            Mode::Differences | Mode::Resend => Placement::Read,
            Mode::Index => Placement::Equal,
        };
    };
    let current = entry.epoch == epoch;
    if current && entry.complete && entry.digest.is_none() {
        return Placement::Leave;
    }
    let equal = entry.complete && entry.digest.is_some() && entry.digest == digest.total;
    match mode {
        Mode::Resend if !current => Placement::Read,
        Mode::Differences | Mode::Resend | Mode::Index if equal => Placement::Equal,
        Mode::Differences | Mode::Resend | Mode::Index => Placement::Update,
    }
}

/// The index entry of a row that was placed.
#[must_use]
pub fn placed_entry(epoch: u64, digest: RowDigest) -> RowEntry {
    RowEntry { epoch, complete: true, digest: digest.total, large: digest.large }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_of_entry_and_mode() {
        let digest = |total| RowDigest { total: Some(total), large: Vec::new() };
        let entry = |epoch, complete, digest| Some(RowEntry { epoch, complete, digest, large: Vec::new() });
        let check = |mode, held: Option<RowEntry>, expect| {
            assert_eq!(placement(mode, 7, held.as_ref(), &digest(1)), expect, "{mode:?} {held:?}");
        };
        check(Mode::Differences, None, Placement::Read);
        check(Mode::Differences, entry(6, true, Some(1)), Placement::Equal);
        check(Mode::Differences, entry(6, true, Some(2)), Placement::Update);
        check(Mode::Differences, entry(6, true, None), Placement::Update);
        check(Mode::Differences, entry(6, false, None), Placement::Update);
        check(Mode::Differences, entry(7, true, None), Placement::Leave);
        check(Mode::Differences, entry(7, false, None), Placement::Update);
        check(Mode::Differences, entry(7, true, Some(1)), Placement::Equal);
        check(Mode::Resend, None, Placement::Read);
        check(Mode::Resend, entry(6, true, Some(1)), Placement::Read);
        check(Mode::Resend, entry(7, true, Some(1)), Placement::Equal);
        check(Mode::Index, None, Placement::Equal);
        check(Mode::Index, entry(7, true, None), Placement::Leave);
        check(Mode::Index, entry(7, false, None), Placement::Update);
    }
}
