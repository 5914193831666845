//! hstore: `"k"=>"v", "n"=>NULL`, as the server prints it, to a JSON object.

use super::super::string;
use crate::config::format::HstoreMode;

pub(super) fn write(text: &[u8], mode: HstoreMode, out: &mut Vec<u8>) -> Option<()> {
    match mode {
        HstoreMode::Map => write_object(text, out),
        HstoreMode::Json => {
            let mut object = Vec::new();
            write_object(text, &mut object)?;
            string::write_bytes(&object, out);
            Some(())
        }
    }
}

fn write_object(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.push(b'{');
    let (mut rest, mut content) = (text, Vec::new());
    while !rest.is_empty() {
        rest = quoted(rest, &mut content)?;
        string::write_bytes(&content, out);
        out.push(b':');
        rest = rest.strip_prefix(b"=>")?;
        if let Some(after) = rest.strip_prefix(b"NULL") {
            out.extend_from_slice(b"null");
            rest = after;
        } else {
            rest = quoted(rest, &mut content)?;
            string::write_bytes(&content, out);
        }
        match rest.strip_prefix(b", ") {
            Some(after) => {
                out.push(b',');
                rest = after;
            }
            None if rest.is_empty() => {}
            None => return None,
        }
    }
    out.push(b'}');
    Some(())
}

/// The content of a quoted text at the front into `content`; gives what follows it.
fn quoted<'t>(text: &'t [u8], content: &mut Vec<u8>) -> Option<&'t [u8]> {
    content.clear();
    let mut rest = text.strip_prefix(b"\"")?;
    loop {
        match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', escaped, after @ ..] => {
                content.push(*escaped);
                rest = after;
            }
            [byte, after @ ..] => {
                content.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_a_json_object() {
        let check = |text: &str, expect: Option<&str>| {
            let mut out = Vec::new();
            assert_eq!(write_object(text.as_bytes(), &mut out).map(|()| String::from_utf8(out).unwrap()).as_deref(), expect, "{text}");
        };
        check("", Some("{}"));
        check(r#""k1"=>"v1", "k2"=>NULL"#, Some(r#"{"k1":"v1","k2":null}"#));
        check(r#""q\""=>"b\\s", "n"=>"NULL""#, Some(r#"{"q\"":"b\\s","n":"NULL"}"#));
        check(r#""a"=>"1","#, None);
        check(r#""a""#, None);
    }
}
