//! Arrays: from the server's text (PostgreSQL manual, "Array Input and Output Syntax") to JSON arrays.
//!
//! ```text
//! [2:3]={a,"b \"c\"",NULL,"NULL",{…}}
//! ```
//!
//! One pass, bracket by bracket; elements go to the output as soon as they end.

use super::Kind;
use crate::config::Format;

/// PostgreSQL's own limit (`MAXDIM`).
const DIMENSIONS_MAX: usize = 6;

/// Writes an array; `None` where `text` is no array, and then what was written is to be taken back.
pub(super) fn write(element: &Kind, delimiter: u8, text: &[u8], format: Format, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = without_bounds(text)?;
    let mut unescaped = Vec::new();
    let mut depth = 0;
    loop {
        // An element is due, or a dimension.
        match rest.split_first()? {
            (b'{', inside) => {
                depth += 1;
                out.push(b'[');
                rest = inside;
                if depth > DIMENSIONS_MAX {
                    return None;
                }
                if inside.first() != Some(&b'}') {
                    continue;
                }
            }
            (_, _) if depth == 0 => return None,
            (b'"', quoted) => {
                let (content, after) = quoted_element(quoted, &mut unescaped)?;
                super::write(element, content, format, out);
                rest = after;
            }
            _ => {
                let (content, after) = plain_element(rest, delimiter)?;
                match content {
                    b"NULL" => out.extend_from_slice(b"null"),
                    _ => super::write(element, content, format, out),
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

/// Lower bounds that are not 1 are printed before the array, up to an equals sign.
fn without_bounds(text: &[u8]) -> Option<&[u8]> {
    if text.first() != Some(&b'[') {
        return Some(text);
    }
    let end = memchr::memchr(b'=', text)?;
    let (bounds, rest) = text.split_at_checked(end)?;
    let are_bounds = bounds.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'[' | b']' | b':' | b'-'));
    if are_bounds { rest.get(1..) } else { None }
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
