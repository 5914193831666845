//! Batches and records for the tests of sinks and store.

use std::sync::Arc;

use serde_json::json;

use crate::batch::{Batch, Written};
use crate::event::topic::Topic;
use crate::progress::Progress;
use crate::rebuild::journal::TableJournal;

/// The progress record of the `number`th batch of stream `shop`.
pub(crate) fn progress(number: u64) -> Progress {
    serde_json::from_value(json!({
        "version": crate::progress::PROGRESS_VERSION,
        "stream": "shop",
        "batch": {"instance": "0123456789abcdef0123456789abcdef", "number": number},
        "fingerprint": {"database": 5, "slot": "walgate_shop", "publications": [[16_400, "walgate_shop"]], "options": "proto_version '1'"},
        "system_identifier": "7000000000000000000",
        "timeline": 1,
        "stream_epoch": 1,
        "position": {"commit_lsn": format!("0/{number:X}00"), "ordinal": 3},
        "end_lsn": format!("0/{number:X}80"),
        "split": null,
        "placed": {"boundary": "0/0", "count": 0},
        "message_lsn": "0/0",
        "slot": {"generation": 1, "consistent_point": "0/50", "exported_snapshot": "10:10:", "fence": 0, "passed": true},
        "table_epoch": 1,
        "rebuild": null,
        "events_total": number * 10,
    }))
    .unwrap()
}

/// A table's record, told from an earlier one by its epoch.
pub(crate) fn table(topic: &str, epoch: u64) -> TableJournal {
    serde_json::from_value(json!({
        "topic": topic, "oid": 16_385, "schema": "public", "name": topic, "terms": "", "epoch": epoch, "rebuild": 0,
        "mode": "differences", "sweep": true, "step": "chunks", "fingerprint": "00", "leaves": [{"oid": 16_385, "next": [4, 1], "blocks": 9}],
        "fence": 0, "skip_snapshot": null, "skip_until": "0/0",
        "counts": {"rows": 1, "read": 1, "updated": 0, "deleted": 0, "equal": 0, "left_to_stream": 0}, "planned_again": 0,
    }))
    .unwrap()
}

/// A batch of events `(topic, n)`: key `n`, value `{"n":n}`, id `id-n`.
pub(crate) fn batch(events: &[(&str, u64)]) -> Batch {
    let mut batch = Batch::default();
    for (topic, n) in events {
        let mut piece = |text: String| {
            let arena = batch.arena();
            let start = arena.len();
            arena.extend_from_slice(text.as_bytes());
            start..arena.len()
        };
        let written = Written {
            key: Some(piece(n.to_string())),
            value: Some(piece(format!("{{\"n\":{n}}}"))),
            id: piece(format!("id-{n}")),
            order: piece(format!("{n:016x}")),
        };
        batch.push(Arc::new(Topic { name: (*topic).to_owned(), keyed: true }), written);
    }
    batch
}
