use std::collections::{HashMap, HashSet};

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::batch::EventView;
use crate::config::format::Format;
use crate::event::plan::TableFacts;
use crate::lsn::Oid;
use crate::pgoutput::relation::{Relation, RelationColumn, ReplicaIdentity};

const MOMENT: Moment<'static> = Moment {
    commit_time_us: 1_796_067_327_392_206,
    xid: Some(Xid::new(747)),
    lsn: Lsn::new(0x0184_2570),
    replicated_from: None,
    now_ns: 1_796_067_327_697_541_071,
    snapshot: false,
    numbered: None,
};

fn streamed(part: u16) -> Origin {
    Origin::Streamed { position: Position { commit_lsn: Lsn::new(0x0184_2600), ordinal: 3 }, part }
}

fn placed() -> Origin {
    let (table, key_digest) = (Oid::new(16_385), 1);
    Origin::Placed { boundary: Lsn::new(0x100), count: 2, table_epoch: 7, table, key_digest, row_digest: Some(2), part: 0 }
}

fn envelope(event_bytes_max: u64) -> Envelope {
    let timelines = vec![(Lsn::new(0), 1)];
    let stream = StreamIdentity { stream: "shop".to_owned(), system_identifier: 42, stream_epoch: 1, timelines };
    Envelope::new(stream, "sales", "shop", event_bytes_max, &Format::default())
}

fn plan(key: &[&str]) -> TablePlan {
    let column =
        |name: &str, type_oid, in_identity| RelationColumn { name: name.to_owned(), type_oid: Oid::new(type_oid), typmod: -1, in_identity };
    let relation = Relation {
        oid: Oid::new(16_385),
        schema: "public".to_owned(),
        name: "orders".to_owned(),
        identity: ReplicaIdentity::Default,
        columns: vec![column("id", 20, key.contains(&"id")), column("note", 25, false), column("total", 1700, false)],
    };
    let facts = TableFacts {
        key: key.iter().map(|&name| name.to_owned()).collect(),
        types: HashMap::new(),
        not_null: HashSet::new(),
        is_gone: false,
    };
    let topic = Topic { name: "shop.public.orders".to_owned(), keyed: !key.is_empty() };
    TablePlan::new(relation, &facts, Arc::new(topic), &Format::default())
}

const ROW: [Value<'static>; 3] = [Value::Text(b"4"), Value::Text(b"two\nlines"), Value::Text(b"1.50")];

fn row_event(
    batch: &mut Batch,
    plan: &TablePlan,
    origin: Origin,
    moment: &Moment<'_>,
    op: Op,
    before: Option<Image<'_>>,
    after: Option<Image<'_>>,
) {
    envelope(u64::MAX).row(batch, plan, origin, moment, op, before, after).unwrap();
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn only_event(batch: &Batch) -> EventView<'_> {
    assert_eq!(batch.len(), 1);
    batch.events().next().unwrap()
}

fn json_of(bytes: Option<&[u8]>) -> Json {
    serde_json::from_slice(bytes.unwrap()).unwrap()
}

#[test]
fn a_created_row_reads_exactly_so() {
    let mut batch = Batch::default();
    row_event(&mut batch, &plan(&["id"]), streamed(0), &MOMENT, Op::Create, None, Some(Image::Full(&ROW)));
    let event = only_event(&batch);
    assert_eq!(text(event.key.unwrap()), r#"{"id":4}"#);
    assert_eq!(text(event.id), "shop:42:1:0/1842600:3");
    assert_eq!(text(event.order), "00000001.0000000001842600.1.0000000000000003.0000");
    let expect = concat!(
        r#"{"before":null,"after":{"id":4,"note":"two\nlines","total":"1.50"},"#,
        r#""source":{"version":"VERSION","connector":"postgresql","name":"shop","ts_ms":1796067327392,"snapshot":"false","#,
        r#""db":"sales","sequence":"[\"25437696\",\"25437552\"]","ts_us":1796067327392206,"ts_ns":1796067327392206000,"#,
        r#""schema":"public","table":"orders","txId":747,"lsn":25437552,"xmin":null,"origin":null,"origin_lsn":null,"#,
        r#""commit_lsn":25437696,"ordinal":3,"order":"00000001.0000000001842600.1.0000000000000003.0000"},"#,
        r#""transaction":null,"op":"c","ts_ms":1796067327697,"ts_us":1796067327697541,"ts_ns":1796067327697541071}"#,
    );
    assert_eq!(text(event.value.unwrap()), expect.replace("VERSION", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_logical_message_reads_exactly_so() {
    let mut batch = Batch::default();
    let topic = Arc::new(Topic::of_messages("shop"));
    let moment = Moment { xid: None, ..MOMENT };
    let origin = Origin::Message { lsn: Lsn::new(0x0184_2570) };
    envelope(u64::MAX).logical_message(&mut batch, &topic, origin, &moment, "audit", &[1, 2, 3, 0xFF]).unwrap();
    let event = only_event(&batch);
    assert_eq!(event.topic.name, "shop.message");
    assert_eq!(text(event.key.unwrap()), r#"{"prefix":"audit"}"#);
    assert_eq!(text(event.id), "shop:42:1:0/1842570:m");
    let expect = concat!(
        r#"{"op":"m","ts_ms":1796067327697,"#,
        r#""source":{"version":"VERSION","connector":"postgresql","name":"shop","ts_ms":1796067327392,"snapshot":"false","#,
        r#""db":"sales","sequence":"[null,\"25437552\"]","ts_us":1796067327392206,"ts_ns":1796067327392206000,"#,
        r#""schema":"","table":"","txId":null,"lsn":25437552,"xmin":null,"origin":null,"origin_lsn":null,"#,
        r#""commit_lsn":null,"ordinal":null,"order":"00000001.0000000001842570.1.0000000000000000.0000"},"#,
        r#""transaction":null,"message":{"prefix":"audit","content":"AQID/w=="}}"#,
    );
    assert_eq!(text(event.value.unwrap()), expect.replace("VERSION", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_placed_row_is_marked_as_read_and_has_no_position() {
    let mut batch = Batch::default();
    let moment = Moment { xid: None, snapshot: true, lsn: Lsn::new(0x100), ..MOMENT };
    row_event(&mut batch, &plan(&["id"]), placed(), &moment, Op::Read, None, Some(Image::Full(&ROW)));
    let event = only_event(&batch);
    let value = json_of(event.value);
    assert_eq!(value["op"], "r");
    assert_eq!(value["source"]["snapshot"], "true");
    assert_eq!(value["source"]["sequence"], r#"[null,"256"]"#);
    for field in ["txId", "commit_lsn", "ordinal"] {
        assert_eq!(value["source"][field], Json::Null, "{field}");
    }
    assert_eq!(value["source"]["order"], text(event.order));
}

#[test]
fn an_update_names_the_columns_it_left_unchanged() {
    let mut batch = Batch::default();
    let new = [Value::Text(b"4"), Value::Unchanged, Value::Unchanged];
    row_event(&mut batch, &plan(&["id"]), streamed(0), &MOMENT, Op::Update, None, Some(Image::Full(&new)));
    let value = json_of(only_event(&batch).value);
    assert_eq!(value["after"], json!({"id": 4}));
    assert_eq!(value["source"]["unchanged"], json!(["note", "total"]));
}

#[test]
fn a_delete_shows_what_is_known_and_its_tombstone_has_the_same_key() {
    let mut batch = Batch::default();
    let plan = plan(&["id"]);
    let old = [Value::Text(b"4"), Value::Null, Value::Null];
    row_event(&mut batch, &plan, streamed(0), &MOMENT, Op::Delete, Some(Image::Identity(&old)), None);
    envelope(u64::MAX).tombstone(&mut batch, &plan, streamed(1), &old);
    let [delete, tombstone] = batch.events().collect::<Vec<_>>().try_into().unwrap();
    let value = json_of(delete.value);
    assert_eq!((&value["before"], &value["after"], &value["op"]), (&json!({"id": 4}), &Json::Null, &json!("d")));
    assert_eq!(value["source"].get("unchanged"), None);
    assert_eq!((tombstone.key, tombstone.value), (delete.key, None));
    assert_eq!(text(tombstone.id), "shop:42:1:0/1842600:3.1");
    assert!(delete.order < tombstone.order);
}

#[test]
fn a_row_known_by_its_index_key_is_deleted_by_it() {
    let mut batch = Batch::default();
    let plan = plan(&["id"]);
    let row = plan.row_of_index_key(b"\x014").unwrap();
    row_event(&mut batch, &plan, placed(), &MOMENT, Op::Delete, Some(Image::Key(&row)), None);
    let value = json_of(only_event(&batch).value);
    assert_eq!(value["before"], json!({"id": 4}));
}

#[test]
fn truncates_and_rows_without_a_key_have_no_key() {
    let mut batch = Batch::default();
    envelope(u64::MAX).truncate(&mut batch, &plan(&["id"]), streamed(0), &MOMENT).unwrap();
    row_event(&mut batch, &plan(&[]), streamed(1), &MOMENT, Op::Create, None, Some(Image::Full(&ROW)));
    let [truncate, create] = batch.events().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((truncate.key, create.key), (None, None));
    let value = json_of(truncate.value);
    assert_eq!((&value["op"], &value["before"], &value["after"]), (&json!("t"), &Json::Null, &Json::Null));
}

#[test]
fn a_replicated_change_names_its_origin() {
    let mut batch = Batch::default();
    let moment = Moment { replicated_from: Some(ReplicatedFrom { name: "else\"where", lsn: Lsn::new(9) }), ..MOMENT };
    row_event(&mut batch, &plan(&["id"]), streamed(0), &moment, Op::Create, None, Some(Image::Full(&ROW)));
    let source = &json_of(only_event(&batch).value)["source"];
    assert_eq!((&source["origin"], &source["origin_lsn"]), (&json!("else\"where"), &json!(9)));
}

#[test]
fn an_event_above_the_limit_leaves_the_batch_as_it_was_and_shows_no_value() {
    let mut batch = Batch::default();
    let plan = plan(&["id"]);
    row_event(&mut batch, &plan, streamed(0), &MOMENT, Op::Create, None, Some(Image::Full(&ROW)));
    let event = only_event(&batch);
    let bytes = (event.key.unwrap().len() + event.value.unwrap().len()) as u64;
    let arena = batch.bytes();
    let write =
        |batch: &mut Batch, limit| envelope(limit).row(batch, &plan, streamed(0), &MOMENT, Op::Create, None, Some(Image::Full(&ROW)));

    let error = write(&mut batch, bytes - 1).unwrap_err();
    assert_eq!((batch.len(), batch.bytes()), (1, arena));
    let key_digest = Some(key_digest(b"\x014"));
    assert_eq!(error, EventTooLarge { table: "public.orders".to_owned(), key_digest, bytes, limit: bytes - 1 });
    assert!(error.to_string().starts_with("an event of `public.orders` (key digest `"), "{error}");

    write(&mut batch, bytes).unwrap();
    assert_eq!(batch.len(), 2);
}

#[test]
fn a_logical_message_above_the_limit_leaves_the_batch_as_it_was() {
    let mut batch = Batch::default();
    let topic = Arc::new(Topic::of_messages("shop"));
    let error = envelope(600).logical_message(&mut batch, &topic, streamed(0), &MOMENT, "audit", &[0; 300]).unwrap_err();
    assert_eq!((error.table.as_str(), batch.bytes(), batch.len()), ("shop.message", 0, 0));
}

proptest! {
    #[test]
    fn any_row_at_any_moment_is_valid_json_on_one_line(
        row in prop::collection::vec(prop_oneof![Just(None), prop::collection::vec(any::<u8>(), 0..20).prop_map(Some)], 3),
        commit_time_us: i64,
        now_ns: i64,
        lsn: u64,
        name in any::<String>(),
    ) {
        let row: Vec<Value<'_>> = row.iter().map(|text| text.as_deref().map_or(Value::Unchanged, Value::Text)).collect();
        let replicated_from = Some(ReplicatedFrom { name: &name, lsn: Lsn::new(lsn) });
        let moment = Moment { commit_time_us, now_ns, lsn: Lsn::new(lsn), replicated_from, ..MOMENT };
        let mut batch = Batch::default();
        let after = Some(Image::Full(&row));
        row_event(&mut batch, &plan(&["id"]), streamed(0), &moment, Op::Update, after, after);
        let event = only_event(&batch);
        let value = json_of(event.value);
        prop_assert_eq!(&value["before"], &value["after"]);
        prop_assert_eq!(value["source"]["origin"].as_str(), Some(name.as_str()));
        prop_assert_eq!(value["ts_ns"].as_i64(), Some(now_ns));
        prop_assert!(json_of(event.key).is_object());
        prop_assert!(!text(event.value.unwrap()).contains(['\n', '\r']));
    }
}
