//! The begin and end marks of a rebuild, in `<prefix>.__rebuild`: key `{"id":…}`, value as
//! `schemas/rebuild_mark.schema.json` says.

use std::io::Write as _;
use std::sync::Arc;

use crate::batch::{Batch, Written};
use crate::event::identity::{Origin, StreamIdentity};
use crate::event::topic::Topic;
use crate::lsn::{Lsn, Oid};
use crate::rebuild::journal::{RebuildJournal, TableJournal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Begin,
    End,
}

/// Writes a mark at `(boundary, count)`.
pub fn write<'t>(
    batch: &mut Batch,
    stream: &StreamIdentity,
    prefix: &str,
    rebuild: &RebuildJournal,
    mark: Mark,
    (boundary, count): (Lsn, u64),
    tables: impl Iterator<Item = &'t TableJournal>,
) {
    let mark = match mark {
        Mark::Begin => "begin",
        Mark::End => "end",
    };
    let mut counts = serde_json::Map::new();
    for table in tables {
        let c = table.counts;
        counts.insert(
            table.topic.clone(),
            serde_json::json!({
                "rows": c.rows, "read": c.read, "updated": c.updated, "deleted": c.deleted, "equal": c.equal,
                "left_to_stream": c.left_to_stream, "swept": table.sweep,
            }),
        );
    }
    let origin = Origin::Placed { boundary, count, table_epoch: 0, table: Oid::new(0), key_digest: 0, row_digest: None, part: 0 };
    let order = origin.order(stream).to_string();
    let value = serde_json::json!({
        "id": rebuild.id, "reason": rebuild.reason, "seen": rebuild.seen, "mark": mark, "lsn": boundary.to_string(), "tables": counts,
        "source": { "order": order },
    });
    let mut piece = |text: &str| {
        let arena = batch.arena();
        let start = arena.len();
        let written = arena.write_all(text.as_bytes());
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
        start..arena.len()
    };
    let written = Written {
        key: Some(piece(&format!(r#"{{"id":{}}}"#, rebuild.id))),
        value: Some(piece(&value.to_string())),
        id: piece(&format!("{}:{}:rebuild:{}:{mark}", stream.stream, stream.system_identifier, rebuild.id)),
        order: piece(&order),
    };
    batch.push(Arc::new(Topic { name: format!("{prefix}.__rebuild"), keyed: true }), written);
}
