//! Arrays: from the server's text (PostgreSQL manual, "Array Input and Output Syntax") to JSON arrays.
//!
//! ```text
//! [2:3]={a,"b \"c\"",NULL,"NULL",{…}}
//! ```
//!
//! One pass, bracket by bracket; elements go to the output as soon as they end.
//!
//! What a JSON array cannot tell apart is left as text: lower bounds that are not 1; where elements may be arrays or
//! `null` themselves (JSON, domains over arrays), several dimensions and elements that are `null`.

use super::Kind;

/// PostgreSQL's own limit (`MAXDIM`).
const DIMENSIONS_MAX: usize = 6;

/// Writes an array; `None` where `text` is none that a JSON array can hold, and then what was written is to be taken
/// back.
pub(super) fn write(element: &Kind, delimiter: u8, text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let dimensions_max = if matches!(element, Kind::Json | Kind::Array { .. }) { 1 } else { DIMENSIONS_MAX };
    // The peer's arrays begin at one, whatever their bounds are.
    let mut rest = match text {
        [b'[', ..] if element.is_debezium() => text.get(memchr::memchr(b'=', text)? + 1..)?,
        _ => text,
    };
    let mut unescaped = Vec::new();
    let mut depth = 0;
    loop {
        // An element is due, or a dimension.
        match rest.split_first()? {
            (b'{', inside) => {
                depth += 1;
                out.push(b'[');
                rest = inside;
                if depth > dimensions_max {
                    return None;
                }
                if inside.first() != Some(&b'}') {
                    continue;
                }
            }
            (_, _) if depth == 0 => return None,
            (b'"', quoted) => {
                let (content, after) = quoted_element(quoted, &mut unescaped)?;
                if *element == Kind::Json && content.trim_ascii() == b"null" {
                    return None;
                }
                super::write(element, content, out);
                rest = after;
            }
            _ => {
                let (content, after) = plain_element(rest, delimiter)?;
                match content {
                    b"NULL" => out.extend_from_slice(b"null"),
                    _ => super::write(element, content, out),
                }
                rest = after;
            }
        }
        // It has ended, and maybe dimensions with it.
        loop {
            match rest.split_first()? {
                (b'}', after) => {
                    out.push(b']');
                    depth -= 1;
                    rest = after;
                    if depth == 0 {
                        return rest.is_empty().then_some(());
                    }
                }
                (byte, after) if *byte == delimiter => {
                    out.push(b',');
                    rest = after;
                    break;
                }
                _ => return None,
            }
        }
    }
}

/// An element without quotes, and what follows it.
fn plain_element(text: &[u8], delimiter: u8) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|byte| *byte == delimiter || matches!(byte, b'{' | b'}' | b'"' | b'\\'))?;
    let (content, after) = text.split_at_checked(end)?;
    (!content.is_empty()).then_some((content, after))
}

/// The content of a quoted element whose opening quote is taken, and what follows its closing quote. Content
/// with escapes is put together in `unescaped`.
fn quoted_element<'u, 't: 'u>(text: &'t [u8], unescaped: &'u mut Vec<u8>) -> Option<(&'u [u8], &'t [u8])> {
    if let (content, [b'"', after @ ..]) = split_at_special(text)? {
        return Some((content, after));
    }
    unescaped.clear();
    let mut rest = text;
    loop {
        let (plain, special) = split_at_special(rest)?;
        unescaped.extend_from_slice(plain);
        match special {
            [b'"', after @ ..] => return Some((unescaped, after)),
            [_, escaped, after @ ..] => {
                unescaped.push(*escaped);
                rest = after;
            }
            _ => return None,
        }
    }
}

/// The text before its first quote or backslash, and the text from there on.
fn split_at_special(text: &[u8]) -> Option<(&[u8], &[u8])> {
    text.split_at_checked(memchr::memchr2(b'"', b'\\', text)?)
}
