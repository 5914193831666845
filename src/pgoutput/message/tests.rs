use proptest::prelude::*;

use super::*;
use crate::pgoutput::relation::{RelationColumn, ReplicaIdentity};

/// Builds the bytes of a message, as the walsender does.
#[derive(Clone)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn of(tag: u8) -> Self {
        Self(vec![tag])
    }
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn name(mut self, name: &str) -> Self {
        self.0.extend(name.bytes());
        self.u8(0)
    }
    fn tuple(self, kind: u8, values: &[Value<'_>]) -> Self {
        values.iter().fold(self.u8(kind).u16(u16::try_from(values.len()).unwrap()), |bytes, value| match value {
            Value::Null => bytes.u8(b'n'),
            Value::Unchanged => bytes.u8(b'u'),
            Value::Text(text) => {
                let mut bytes = bytes.u8(b't').u32(u32::try_from(text.len()).unwrap());
                bytes.0.extend(*text);
                bytes
            }
        })
    }
}

const ROW: [Value<'static>; 4] = [Value::Text(b"42"), Value::Null, Value::Unchanged, Value::Text(b"")];

fn relation() -> Bytes {
    let bytes = Bytes::of(b'R').u32(16_385).name("").name("orders").u8(b'd').u16(2);
    bytes.u8(1).name("id").u32(20).u32(u32::MAX).u8(0).name("Größe").u32(1700).u32(0x0005_0006)
}

/// One message of each tag, two where they have two shapes.
fn every_message() -> Vec<Vec<u8>> {
    [
        Bytes::of(b'B').u64(0x16_B374_D848).u64(7).u32(735),
        Bytes::of(b'C').u8(0).u64(1).u64(2).u64(3),
        Bytes::of(b'O').u64(9).name("elsewhere"),
        relation(),
        Bytes::of(b'Y').u32(16_400).name("public").name("mood"),
        Bytes::of(b'I').u32(16_385).tuple(b'N', &ROW),
        Bytes::of(b'U').u32(16_385).tuple(b'N', &ROW),
        Bytes::of(b'U').u32(16_385).tuple(b'O', &ROW).tuple(b'N', &ROW),
        Bytes::of(b'D').u32(16_385).tuple(b'K', &ROW),
        Bytes::of(b'T').u32(2).u8(3).u32(16_385).u32(16_386),
        Bytes::of(b'M').u8(1).u64(5).name("audit").u32(3).u8(0).u8(1).u8(0xFF),
    ]
    .map(|bytes| bytes.0)
    .to_vec()
}

fn values(tuple: &Tuple<'_>) -> bool {
    tuple.len() == ROW.len() && tuple.values().eq(ROW)
}

#[test]
fn transactions_are_read() {
    let bytes = every_message();
    let begin = Message::Begin { final_lsn: Lsn::new(0x16_B374_D848), commit_time: 7, xid: Xid::new(735) };
    assert_eq!(decode(&bytes[0]), Ok(begin));
    assert_eq!(decode(&bytes[1]), Ok(Message::Commit { commit_lsn: Lsn::new(1), end_lsn: Lsn::new(2), commit_time: 3 }));
    assert_eq!(decode(&bytes[2]), Ok(Message::Origin { lsn: Lsn::new(9), name: "elsewhere" }));
    assert_eq!(unix_time_us(0), 946_684_800_000_000);
}

#[test]
fn relations_are_read_and_an_empty_schema_is_pg_catalog() {
    let expect = Relation {
        oid: Oid::new(16_385),
        schema: "pg_catalog".to_owned(),
        name: "orders".to_owned(),
        identity: ReplicaIdentity::Default,
        columns: vec![
            RelationColumn { name: "id".to_owned(), type_oid: Oid::new(20), typmod: -1, in_identity: true },
            RelationColumn { name: "Größe".to_owned(), type_oid: Oid::new(1700), typmod: 0x0005_0006, in_identity: false },
        ],
    };
    assert_eq!(decode(&relation().0), Ok(Message::Relation(expect)));
    let mood = Message::Type { oid: Oid::new(16_400), schema: "public", name: "mood" };
    assert_eq!(decode(&every_message()[4]), Ok(mood));
}

#[test]
fn rows_are_read_with_null_unchanged_and_empty_text_apart() {
    let bytes = every_message();
    assert!(matches!(decode(&bytes[5]), Ok(Message::Insert { new, .. }) if values(&new)));
    assert!(matches!(decode(&bytes[6]), Ok(Message::Update { old: None, new, .. }) if values(&new)));
    let full = decode(&bytes[7]);
    assert!(matches!(full, Ok(Message::Update { old: Some(OldTuple::Full(old)), new, .. }) if values(&old) && values(&new)));
    assert!(matches!(decode(&bytes[8]), Ok(Message::Delete { old: OldTuple::Key(old), .. }) if values(&old)));
}

#[test]
fn truncates_and_logical_messages_are_read() {
    let bytes = every_message();
    let truncate = Message::Truncate { relations: vec![Oid::new(16_385), Oid::new(16_386)], cascade: true, restart_identity: true };
    assert_eq!(decode(&bytes[9]), Ok(truncate));
    let logical = Message::Logical { transactional: true, lsn: Lsn::new(5), prefix: "audit", content: &[0, 1, 0xFF] };
    assert_eq!(decode(&bytes[10]), Ok(logical));
}

#[test]
fn a_message_cut_anywhere_is_an_error() {
    for message in every_message() {
        for length in 0..message.len() {
            assert!(decode(&message[..length]).is_err(), "{} bytes of {}", length, message.escape_ascii());
        }
    }
}

#[test]
fn bytes_after_the_end_are_an_error() {
    for mut message in every_message() {
        let tag = Tag(message[0]);
        message.push(0);
        assert_eq!(decode(&message), Err(DecodeError::Trailing { tag, left: 1 }));
    }
}

#[test]
fn every_tag_of_other_protocol_versions_is_unknown() {
    for tag in (0..=u8::MAX).filter(|tag| !b"BCORYIUDTM".contains(tag)) {
        for mut message in every_message() {
            message[0] = tag;
            assert_eq!(decode(&message), Err(DecodeError::UnknownTag(Tag(tag))));
        }
    }
}

#[test]
fn lengths_and_counts_that_cannot_be_are_errors() {
    let check = |bytes: Bytes, expect: &str| assert_eq!(decode(&bytes.0).unwrap_err().to_string(), expect);
    let insert = Bytes::of(b'I').u32(1).u8(b'N');
    check(insert.clone().u16(1).u8(b't').u32(u32::MAX), "message `I` has a negative length of a value: `-1`");
    check(
        insert.clone().u16(1).u8(b't').u32(i32::MAX as u32),
        "message `I` ends inside its text of a value: 2147483647 bytes are due, 0 are left",
    );
    check(insert.clone().u16(0xFFFF), "message `I` has a negative value count: `-1`");
    check(insert.clone().u16(3).u8(b'n'), "message `I` ends inside its value count: 3 bytes are due, 1 are left");
    check(
        insert.u16(1).u8(b'b').u32(0),
        "message `I` has the kind of a value `b`: expected `n`, `u` or `t` (binary values are not asked for)",
    );
    check(Bytes::of(b'T').u32(0x4000_0000).u8(0), "message `T` ends inside its relation count: 4294967296 bytes are due, 1 are left");
    check(Bytes::of(b'T').u32(u32::MAX).u8(0), "message `T` has a negative relation count: `-1`");
    check(Bytes::of(b'M').u8(0).u64(1).name("").u32(u32::MAX), "message `M` has a negative content length: `-1`");
    let relation = Bytes::of(b'R').u32(1).name("public").name("t");
    check(relation.clone().u8(b'd').u16(0x7FFF), "message `R` ends inside its column count: 327670 bytes are due, 0 are left");
    check(relation.u8(b'x').u16(0), "message `R` has the replica identity `x`: expected `d`, `n`, `f` or `i`");
    check(Bytes::of(b'C').u8(1).u64(1).u64(2).u64(3), "message `C` has the flags `\\x01`: expected `\\x00`");
    check(Bytes::of(b'D').u32(1).tuple(b'N', &[]), "message `D` has the kind of the old tuple `N`: expected `K` or `O`");
    check(
        Bytes::of(b'O').u64(1).u8(0xE9).u8(0),
        "message `O` has an invalid origin name: not UTF-8; is the database's encoding SQL_ASCII?",
    );
}

#[test]
fn debug_output_hides_the_values() {
    let bytes = Bytes::of(b'I').u32(1).tuple(b'N', &[Value::Text(b"secret")]).0;
    let Ok(Message::Insert { new, .. }) = decode(&bytes) else { panic!("an insert") };
    assert_eq!(format!("{new:?} {:?}", new.values().collect::<Vec<_>>()), "Tuple(1 values) [Text(6 bytes)]");
}

/// Bytes that what was decoded holds on the heap.
fn heap_bytes(message: &Message<'_>) -> usize {
    match message {
        Message::Truncate { relations, .. } => relations.capacity() * size_of::<Oid>(),
        Message::Relation(relation) => {
            let names: usize = relation.columns.iter().map(|column| column.name.capacity()).sum();
            relation.schema.capacity() + relation.name.capacity() + relation.columns.capacity() * size_of::<RelationColumn>() + names
        }
        _ => 0,
    }
}

fn arbitrary_bytes() -> impl Strategy<Value = Vec<u8>> {
    let mutated = (0..every_message().len(), proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)).prop_map(
        |(message, changes)| {
            let mut bytes = every_message().swap_remove(message);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes
        },
    );
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), mutated]
}

proptest! {
    #[test]
    fn any_bytes_decode_or_fail_in_proportion_to_their_length(bytes in arbitrary_bytes()) {
        if let Ok(message) = decode(&bytes) {
            prop_assert!(heap_bytes(&message) <= 64 + 16 * bytes.len());
            if let Message::Insert { new, .. } = message {
                prop_assert_eq!(new.values().count(), new.len());
            }
        }
    }

    #[test]
    fn rows_come_back_as_they_were_sent(row in proptest::collection::vec(proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)), 0..20)) {
        let row: Vec<Value<'_>> = row.iter().map(|text| text.as_deref().map_or(Value::Null, Value::Text)).collect();
        let bytes = Bytes::of(b'I').u32(1).tuple(b'N', &row).0;
        let Ok(Message::Insert { new, .. }) = decode(&bytes) else { panic!("an insert") };
        prop_assert!(new.values().eq(row));
    }
}
