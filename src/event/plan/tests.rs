use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::event::digest::RowDigest;
use crate::pgoutput::relation::RelationColumn;

fn column(name: &str, type_oid: u32, in_identity: bool) -> RelationColumn {
    RelationColumn { name: name.to_owned(), type_oid: Oid::new(type_oid), typmod: -1, in_identity }
}

fn plan_of(columns: Vec<RelationColumn>, identity: ReplicaIdentity, key: &[&str]) -> TablePlan {
    let relation = Relation { oid: Oid::new(16_385), schema: "public".to_owned(), name: "orders".to_owned(), identity, columns };
    let facts = TableFacts {
        key: key.iter().map(|&name| name.to_owned()).collect(),
        types: HashMap::new(),
        not_null: HashSet::new(),
        is_gone: false,
    };
    let topic = Topic { name: "shop.public.orders".to_owned(), keyed: !key.is_empty() };
    TablePlan::new(relation, &facts, Arc::new(topic), &Format::default())
}

/// `id bigint, note text, region text, total numeric` with the key `(region, id)`.
fn orders() -> TablePlan {
    let columns = vec![column("id", 20, true), column("note", 25, false), column("region", 25, true), column("total", 1700, false)];
    plan_of(columns, ReplicaIdentity::Default, &["region", "id"])
}

fn text(text: &str) -> Value<'_> {
    Value::Text(text.as_bytes())
}

fn row<'a>() -> [Value<'a>; 4] {
    [text("42"), text("a \"b\""), text("eu"), Value::Null]
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = b"before ".to_vec();
    write(&mut out);
    String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned()
}

#[test]
fn an_image_has_the_known_columns_in_the_order_of_the_table() {
    let plan = orders();
    let check = |row: &[Value<'_>], columns, expect: &str| assert_eq!(written(|out| plan.write_image(row, columns, out)), expect);
    check(&row(), Columns::All, r#"{"id":42,"note":"a \"b\"","region":"eu","total":null}"#);
    check(&row(), Columns::Identity, r#"{"id":42,"region":"eu"}"#);
    check(&row(), Columns::Key, r#"{"id":42,"region":"eu"}"#);
    check(&[Value::Unchanged, Value::Unchanged, text("eu"), text("1.50")], Columns::All, r#"{"region":"eu","total":"1.50"}"#);
    check(&[Value::Unchanged; 4], Columns::All, "{}");
}

#[test]
fn a_key_has_its_columns_in_key_order() {
    let plan = orders();
    assert!(plan.has_key());
    assert_eq!(plan.key_names().collect::<Vec<_>>(), ["region", "id"]);
    assert_eq!(written(|out| plan.write_key(&row(), out)), r#"{"region":"eu","id":42}"#);
}

#[test]
fn the_key_is_what_the_relation_marks_in_the_order_of_the_catalog() {
    let columns = || vec![column("a", 23, true), column("b", 23, true), column("c", 23, false)];
    let check = |identity, key: &[&str], expect: &[&str]| {
        assert_eq!(plan_of(columns(), identity, key).key_names().collect::<Vec<_>>(), expect, "{identity:?} {key:?}");
    };
    check(ReplicaIdentity::Default, &["b", "a"], &["b", "a"]);
    check(ReplicaIdentity::Default, &["b", "gone"], &["a", "b"]);
    check(ReplicaIdentity::Index, &["gone"], &["a", "b"]);
    check(ReplicaIdentity::Full, &["gone"], &[]);
    check(ReplicaIdentity::Full, &["c"], &["c"]);
    // The catalog is newer: the key was dropped, or has fewer columns, since the change.
    check(ReplicaIdentity::Default, &[], &["a", "b"]);
    check(ReplicaIdentity::Default, &["b"], &["a", "b"]);
    check(ReplicaIdentity::Nothing, &["c"], &["c"]);
}

#[test]
fn an_index_key_comes_back_as_the_row_of_its_key() {
    let plan = orders();
    let long = "x".repeat(300);
    let mut key = Vec::new();
    plan.write_index_key(&[text("42"), text("note"), text(&long), Value::Null], &mut key).unwrap();
    assert_eq!(&key[..2], [0xAC, 0x02]);
    assert_eq!(plan.row_of_index_key(&key), Some(vec![text("42"), Value::Unchanged, text(&long), Value::Unchanged]));
    for length in 0..key.len() {
        assert_eq!(plan.row_of_index_key(&key[..length]), None, "{length}");
    }
    key.push(0);
    assert_eq!(plan.row_of_index_key(&key), None);
}

#[test]
fn a_key_without_a_value_is_no_index_key() {
    let plan = orders();
    for missing in [Value::Null, Value::Unchanged] {
        let mut key = b"before".to_vec();
        let error = plan.write_index_key(&[missing, text("note"), text("eu"), Value::Null], &mut key).unwrap_err();
        assert_eq!(error.to_string(), "a row of `public.orders` has no value in its key column `id`");
        assert_eq!(key, b"before");
    }
}

#[test]
fn values_that_were_left_out_are_filled_from_the_old_row() {
    let plan = orders();
    let new = [Value::Unchanged, Value::Unchanged, text("us"), text("2")];
    let old = [text("42"), text("note"), text("eu"), Value::Null];
    let filled = |columns| {
        let mut row = new;
        plan.fill_unchanged(&mut row, &old, columns);
        row
    };
    assert_eq!(filled(Columns::All), [text("42"), text("note"), text("us"), text("2")]);
    assert_eq!(filled(Columns::Identity), [text("42"), Value::Unchanged, text("us"), text("2")]);
    assert_eq!(plan.unchanged(&new).collect::<Vec<_>>(), ["id", "note"]);
}

#[test]
fn names_are_escaped() {
    let plan = plan_of(vec![column("a \"b\"\n", 23, true)], ReplicaIdentity::Default, &[]);
    let image = written(|out| plan.write_image(&[text("1")], Columns::All, out));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&image).unwrap(), json!({"a \"b\"\n": 1}));
}

/// A table of as many text columns as `row` has values, called `c0`, `c1`, …, in the order of `order`.
fn plan_of_columns(order: impl Iterator<Item = usize>) -> TablePlan {
    plan_of(order.map(|number| column(&format!("c{number}"), 25, false)).collect(), ReplicaIdentity::Default, &[])
}

fn digest_of(plan: &TablePlan, row: &[Value<'_>]) -> RowDigest {
    plan.digest(row).completed(&[])
}

#[test]
fn a_digest_tells_values_nulls_and_columns_apart() {
    let plan = plan_of_columns(0..2);
    let rows = [
        [text("a"), text("b")],
        [text("b"), text("a")],
        [text("a"), Value::Null],
        [Value::Null, text("a")],
        [text("a"), text("")],
        [text("ab"), text("")],
        [text("a"), text("a")],
        [text("b"), text("b")],
        [Value::Null, Value::Null],
    ];
    let totals: Vec<u128> = rows.iter().map(|row| digest_of(&plan, row).total.unwrap()).collect();
    for (place, total) in totals.iter().enumerate() {
        assert!(!totals[..place].contains(total), "{:?}", rows[place]);
    }
}

#[test]
fn only_large_values_of_large_rows_are_kept_apart() {
    let plan = plan_of_columns(0..3);
    let kept = |sizes: [usize; 3]| {
        let texts = sizes.map(|size| "x".repeat(size));
        digest_of(&plan, &[text(&texts[0]), text(&texts[1]), text(&texts[2])]).large.len()
    };
    assert_eq!(kept([LARGE_VALUE_BYTES, LARGE_VALUE_BYTES, 10]), 0);
    assert_eq!(kept([LARGE_VALUE_BYTES, LARGE_VALUE_BYTES - 1, LARGE_ROW_BYTES]), 2);
    assert_eq!(kept([0, 0, LARGE_ROW_BYTES - 1]), 0);
    assert_eq!(kept([0, 0, LARGE_ROW_BYTES]), 1);
}

#[test]
fn a_digest_stays_unknown_while_a_part_is() {
    let plan = plan_of_columns(0..3);
    let large = "x".repeat(LARGE_ROW_BYTES);
    let whole = digest_of(&plan, &[text(&large), text(&large), text("1")]);
    let partial = plan.digest(&[text(&large), Value::Unchanged, Value::Unchanged]);
    assert!(!partial.is_complete());
    let completed = partial.completed(&whole.large);
    assert_eq!(completed.total, None);
    assert_eq!(completed.large.len(), 2);
}

/// A row of up to seven values, large ones among them.
fn rows() -> impl Strategy<Value = Vec<Option<String>>> {
    prop::collection::vec(prop::option::of(prop_oneof!["[ab]{0,3}", "[ab]{64,70}", "[ab]{600}"]), 1..8)
}

fn values(row: &[Option<String>]) -> Vec<Value<'_>> {
    row.iter().map(|text| text.as_deref().map_or(Value::Null, |text| Value::Text(text.as_bytes()))).collect()
}

proptest! {
    #[test]
    fn a_digest_does_not_depend_on_the_order_of_columns(row in rows(), turn in 0..8_usize) {
        let row = values(&row);
        let turn = turn % row.len();
        let mut turned = row.clone();
        turned.rotate_left(turn);
        let turned_plan = plan_of_columns((0..row.len()).cycle().skip(turn).take(row.len()));
        prop_assert_eq!(digest_of(&plan_of_columns(0..row.len()), &row).total, digest_of(&turned_plan, &turned).total);
    }

    /// Updates that leave large values out, one after the other, end with the digest of the whole row.
    #[test]
    fn updates_with_unchanged_values_give_the_digest_of_the_whole_row(row in rows(), updates in prop::collection::vec((rows(), any::<u8>()), 1..5)) {
        let plan = plan_of_columns(0..row.len());
        let mut current = row.clone();
        let mut digest = digest_of(&plan, &values(&current));
        for (new, unchanged) in &updates {
            let is_kept = |place: usize| digest.large.iter().any(|part| part.column == plan.columns[place].digest.column);
            let left_out: Vec<bool> = (0..row.len()).map(|place| unchanged >> place & 1 == 1 && is_kept(place)).collect();
            for (place, value) in new.iter().enumerate().take(row.len()) {
                if !left_out[place] {
                    current[place].clone_from(value);
                }
            }
            let sent = values(&current).into_iter().zip(&left_out).map(|(value, &left_out)| if left_out { Value::Unchanged } else { value });
            digest = plan.digest(&sent.collect::<Vec<_>>()).completed(&digest.large);
            prop_assert_eq!(digest.total, digest_of(&plan, &values(&current)).total);
        }
    }

    #[test]
    fn index_keys_are_equal_only_for_equal_keys(one in ("[ab]{0,3}", "[ab]{0,130}"), other in ("[ab]{0,3}", "[ab]{0,130}")) {
        let plan = orders();
        let key = |(region, id): &(String, String)| {
            let mut key = Vec::new();
            plan.write_index_key(&[text(id), Value::Null, text(region), Value::Null], &mut key).unwrap();
            key
        };
        prop_assert_eq!(key(&one) == key(&other), one == other);
    }

    #[test]
    fn any_bytes_are_an_index_key_or_none(key in prop::collection::vec(prop_oneof![any::<u8>(), 0..3_u8], 0..20)) {
        let plan = orders();
        if let Some(row) = plan.row_of_index_key(&key) {
            let mut again = Vec::new();
            plan.write_index_key(&row, &mut again).unwrap();
            prop_assert_eq!(again, key);
        }
    }
}
