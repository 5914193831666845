//! One event as one line of JSON, the form that files and standard output share:
//!
//! ```text
//! {"key":…,"value":…,"headers":{"id":"…"[,"order":"…"]}}
//! ```
//!
//! Standard output has `"topic":"…"` in front. Keys and values are JSON already and go through as they are;
//! a missing key and a tombstone are `null`. A line ends with the only line feed in it: a `json` column keeps
//! the white space of its source, line feeds included, and between two tokens a space says the same.

use crate::batch::EventView;
use crate::config::Header;

/// Writes events as lines, with the headers that are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    order: bool,
}

impl Lines {
    /// The id is always among the headers.
    #[must_use]
    pub fn new(headers: &[Header]) -> Self {
        Self { order: headers.contains(&Header::Order) }
    }

    /// Appends the event's line.
    pub fn write(self, event: &EventView<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        self.write_members(event, out);
    }

    /// Appends the event's line with the topic first.
    pub fn write_with_topic(self, event: &EventView<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"topic\":");
        write_text(event.topic.name.as_bytes(), out);
        out.push(b',');
        self.write_members(event, out);
    }

    fn write_members(self, event: &EventView<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\"key\":");
        write_json(event.key, out);
        out.extend_from_slice(b",\"value\":");
        write_json(event.value, out);
        out.extend_from_slice(b",\"headers\":{\"id\":");
        write_text(event.id, out);
        if self.order {
            out.extend_from_slice(b",\"order\":");
            write_text(event.order, out);
        }
        out.extend_from_slice(b"}}\n");
    }
}

/// JSON, on one line.
fn write_json(json: Option<&[u8]>, out: &mut Vec<u8>) {
    let json = json.unwrap_or(b"null");
    if memchr::memchr2(b'\n', b'\r', json).is_none() {
        out.extend_from_slice(json);
    } else {
        // Inside a string a line feed is always escaped, so a bare one is white space.
        out.extend(json.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }));
    }
}

/// A JSON string. Ids, orders and topics need no escapes; text that does gets them.
fn write_text(text: &[u8], out: &mut Vec<u8>) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        let written = serde_json::to_writer(out, &String::from_utf8_lossy(text));
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::event::topic::Topic;

    fn check(headers: &[Header], key: Option<&str>, value: Option<&str>, id: &str, expect: &str) {
        let topic = Arc::new(Topic { name: "shop.public.orders".to_owned(), keyed: true });
        let event = EventView {
            topic: &topic,
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            id: id.as_bytes(),
            order: b"00000001.7",
        };
        let mut line = Vec::new();
        Lines::new(headers).write(&event, &mut line);
        assert_eq!(String::from_utf8(line.clone()).unwrap(), format!("{expect}\n"));
        let parsed: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(parsed["headers"]["id"], id);

        let mut with_topic = Vec::new();
        Lines::new(headers).write_with_topic(&event, &mut with_topic);
        let expect = expect.replacen('{', r#"{"topic":"shop.public.orders","#, 1);
        assert_eq!(String::from_utf8(with_topic).unwrap(), format!("{expect}\n"));
    }

    #[test]
    fn a_line_is_the_event_and_the_headers_asked_for() {
        check(&[Header::Id], Some(r#"{"id":1}"#), Some(r#"{"a":2}"#), "s:1", r#"{"key":{"id":1},"value":{"a":2},"headers":{"id":"s:1"}}"#);
        check(&[Header::Order], None, Some("1"), "s:1", r#"{"key":null,"value":1,"headers":{"id":"s:1","order":"00000001.7"}}"#);
        check(&[], Some("[1]"), None, "s:1", r#"{"key":[1],"value":null,"headers":{"id":"s:1"}}"#);
    }

    #[test]
    fn line_feeds_of_a_json_column_do_not_end_the_line() {
        check(
            &[],
            None,
            Some("{\"a\":\n\r{\"b\\n\":1}}"),
            "x",
            "{\"key\":null,\"value\":{\"a\":  {\"b\\n\":1}},\"headers\":{\"id\":\"x\"}}",
        );
    }

    #[test]
    fn an_id_that_needs_escapes_gets_them() {
        check(&[], None, None, "a\"b\\c\n\u{e9}", "{\"key\":null,\"value\":null,\"headers\":{\"id\":\"a\\\"b\\\\c\\n\u{e9}\"}}");
    }
}
