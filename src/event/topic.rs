//! Which topic a table's events go to. Two tables never share one: the names are mapped without collisions.
//!
//! A topic is `<prefix>.<schema>.<table>`. Letters, digits, `_` and `-` of ASCII stand for themselves; every other byte of
//! a schema's or a table's name, a dot included, becomes `_x` and two hexadecimal digits, and so does a `_` that
//! stands before an `x`. A name that would be longer than a topic may be is cut and ends in a hash of the whole;
//! only those rest on 64 bits of a hash not being equal.

use std::fmt::Write as _;

use xxhash_rust::xxh3::xxh3_64;

/// A topic of this stream.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Topic {
    /// At most 249 characters of `[A-Za-z0-9._-]`.
    pub name: String,
    /// Whether its records have keys (tables without a key have none).
    pub keyed: bool,
}

/// The longest name that Kafka gives a topic, in characters. It is also a folder's name in the file sink.
pub const TOPIC_NAME_MAX: usize = 249;

/// `-` and the hash of a name that was cut.
const CUT_SUFFIX: usize = 1 + 16;

impl Topic {
    /// The topic of logical messages: `<prefix>.message`. No table's topic has so few dots.
    #[must_use]
    pub fn of_messages(prefix: &str) -> Self {
        Self { name: format!("{prefix}.message"), keyed: true }
    }

    /// The topic that tells where transactions begin and end: `<prefix>.transaction`.
    #[must_use]
    pub fn of_transactions(prefix: &str) -> Self {
        Self { name: format!("{prefix}.transaction"), keyed: true }
    }
}

/// The topic of a table.
#[must_use]
pub fn topic_name(prefix: &str, schema: &str, table: &str) -> String {
    let mut name = String::with_capacity(prefix.len() + schema.len() + table.len() + 2);
    name.push_str(prefix);
    for part in [schema, table] {
        name.push('.');
        push_escaped(part, &mut name);
    }
    if name.len() > TOPIC_NAME_MAX {
        let hash = xxh3_64(name.as_bytes());
        name.truncate(name.floor_char_boundary(TOPIC_NAME_MAX - CUT_SUFFIX));
        push_formatted(&mut name, format_args!("-{hash:016x}"));
    }
    name
}

fn push_escaped(part: &str, name: &mut String) {
    let followers = part.bytes().skip(1).map(Some).chain([None]);
    for (byte, follower) in part.bytes().zip(followers) {
        let stands_for_itself = match byte {
            b'_' => follower != Some(b'x'),
            _ => byte.is_ascii_alphanumeric() || byte == b'-',
        };
        if stands_for_itself {
            name.push(char::from(byte));
        } else {
            push_formatted(name, format_args!("_x{byte:02x}"));
        }
    }
}

fn push_formatted(name: &mut String, text: std::fmt::Arguments<'_>) {
    let written = name.write_fmt(text);
    debug_assert!(written.is_ok(), "writing to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_as_they_are_and_others_are_escaped() {
        let check = |schema, table, expect| assert_eq!(topic_name("shop", schema, table), expect);
        check("public", "order_lines-2", "shop.public.order_lines-2");
        check("public", "Weird Tbl", "shop.public.Weird_x20Tbl");
        check("a.b", "c", "shop.a_x2eb.c");
        check("public", "_x20", "shop.public._x5fx20");
        check("public", "__x", "shop.public.__x5fx");
        check("public", "_ x", "shop.public.__x20x");
        check("public", "é", "shop.public._xc3_xa9");
    }

    #[test]
    fn a_long_name_is_cut_and_keeps_apart_what_differs_at_its_end() {
        let [one, other] = ["1", "2"].map(|end| topic_name("shop", "public", &format!("{}{end}", "表".repeat(40))));
        assert_eq!((one.len(), other.len()), (TOPIC_NAME_MAX, TOPIC_NAME_MAX));
        assert_ne!(one, other);
        let whole = topic_name("shop", "public", &"t".repeat(TOPIC_NAME_MAX - "shop.public.".len()));
        assert!(whole.ends_with("ttt") && whole.len() == TOPIC_NAME_MAX);
    }

    /// What was mapped to `part`.
    fn unescaped(part: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = part.as_bytes();
        while let [first, after @ ..] = rest {
            if let [b'_', b'x', high, low, after @ ..] = rest {
                bytes.push(u8::from_str_radix(std::str::from_utf8(&[*high, *low]).unwrap(), 16).unwrap());
                rest = after;
            } else {
                bytes.push(*first);
                rest = after;
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    proptest! {
        #[test]
        fn a_topic_names_exactly_one_table(schema in "[_x25fe. A-]{1,8}|\\PC{1,6}", table in "[_x25fe. A-]{1,8}|\\PC{1,6}") {
            let name = topic_name("shop", &schema, &table);
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)));
            let parts: Vec<&str> = name.split('.').collect();
            prop_assert_eq!(parts.len(), 3);
            prop_assert_eq!((unescaped(parts[1]), unescaped(parts[2])), (schema, table));
        }
    }
}
