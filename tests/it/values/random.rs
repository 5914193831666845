//! Columns of random types with random values: every built-in type, and arrays, domains and composites of them.

use std::fmt::Write as _;
use std::rc::Rc;

use super::back::literal;
use super::special::column;
use super::thrice::{Column, Form};
use crate::lab::random::Random;

type Values = Rc<dyn Fn(&mut Random) -> String>;

/// A column, and SQL expressions for values of it.
#[derive(Clone)]
pub(crate) struct RandomColumn {
    pub(crate) shape: Column,
    values: Values,
}

impl RandomColumn {
    /// NULL at times.
    pub(crate) fn value(&self, random: &mut Random) -> String {
        if random.one_in(8) { format!("NULL::{}", self.shape.of_type) } else { (self.values)(random) }
    }
}

/// How many types are made from others.
const MADE: u32 = 150;

/// The statements that make the types of the columns, and the columns.
pub(crate) fn columns(random: &mut Random) -> (String, Vec<RandomColumn>) {
    let mut statements = String::new();
    let mut columns: Vec<RandomColumn> = SCALARS.iter().map(|(of_type, values)| scalar(of_type, *values)).collect();
    for number in 0..MADE {
        let first = any(&columns, random).clone();
        let made = match random.below(3) {
            0 if first.shape.of_type.ends_with("[]") => continue,
            0 => array(first),
            1 => {
                let name = format!("domain_{number}");
                writeln!(statements, "CREATE DOMAIN {name} AS {};", first.shape.of_type).expect("a string takes all");
                named(&name, first.shape.form, move |random| (first.values)(random))
            }
            _ => {
                let name = format!("composite_{number}");
                let second = any(&columns, random).clone();
                writeln!(statements, "CREATE TYPE {name} AS (a {}, b {});", first.shape.of_type, second.shape.of_type)
                    .expect("a string takes all");
                named(&name, Form::Text, move |random| format!("ROW({}, {})", first.value(random), second.value(random)))
            }
        };
        columns.push(made);
    }
    (statements, columns)
}

fn any<'a>(columns: &'a [RandomColumn], random: &mut Random) -> &'a RandomColumn {
    &columns[random.below(u32::try_from(columns.len()).expect("a few columns")) as usize]
}

fn named(of_type: &str, form: Form, values: impl Fn(&mut Random) -> String + 'static) -> RandomColumn {
    let of_this_type = of_type.to_owned();
    let values = Rc::new(move |random: &mut Random| format!("({})::{of_this_type}", values(random)));
    RandomColumn { shape: Column { of_type: of_type.to_owned(), form }, values }
}

fn scalar(of_type: &str, values: fn(&mut Random) -> String) -> RandomColumn {
    named(of_type, column(of_type).form, values)
}

/// Of up to three dimensions; with lower bounds of its own at times.
fn array(element: RandomColumn) -> RandomColumn {
    let of_type = format!("{}[]", element.shape.of_type);
    let form = Form::Array(Box::new(element.shape.clone()));
    let of_this_type = of_type.clone();
    named(&of_type, form, move |random| {
        let lengths: Vec<u32> = (0..=random.below(3)).map(|_| 1 + random.below(3)).collect();
        let elements = dimension(&element, &lengths, random);
        match random.below(8) {
            0 => "'{}'".to_owned(),
            1 => {
                let bounds: Vec<String> = lengths.iter().map(|length| format!("[-1:{}]", i64::from(*length) - 2)).collect();
                format!("'{}=' || ({elements}::{of_this_type})::text", bounds.concat())
            }
            _ => elements,
        }
    })
}

fn dimension(element: &RandomColumn, lengths: &[u32], random: &mut Random) -> String {
    let Some((length, inner)) = lengths.split_first() else { return element.value(random) };
    let elements: Vec<String> = (0..*length).map(|_| dimension(element, inner, random)).collect();
    format!("ARRAY[{}]", elements.join(", "))
}

/// One of `special`, or else another.
fn or(random: &mut Random, special: &[&str], other: impl FnOnce(&mut Random) -> String) -> String {
    if random.one_in(3) { literal(pick(random, special)) } else { literal(&other(random)) }
}

fn pick<'a>(random: &mut Random, of: &[&'a str]) -> &'a str {
    of[random.below(u32::try_from(of.len()).expect("a few")) as usize]
}

#[expect(clippy::cast_possible_wrap, reason = "any bits will do")]
fn signed(random: &mut Random) -> i64 {
    (random.next() as i64) >> random.below(64)
}

fn digits(random: &mut Random, length: u32) -> String {
    (0..length).map(|_| char::from(b'0' + u8::try_from(random.below(10)).expect("a digit"))).collect()
}

fn hex(random: &mut Random, bytes: u32) -> String {
    let digit = |random: &mut Random| char::from_digit(random.below(16), 16).expect("a digit");
    (0..2 * bytes).map(|_| digit(random)).collect()
}

fn bits(random: &mut Random, length: u32) -> String {
    (0..length).map(|_| if random.one_in(2) { '0' } else { '1' }).collect()
}

/// Whatever is special in arrays, composites, COPY, JSON or SQL; long at times, so that it is stored out of line.
fn text(random: &mut Random) -> String {
    const PIECES: &[&str] = &[
        "a", "B", " ", "\"", "'", "\\", "{", "}", ",", ";", "(", ")", "[", "]", ":", "=", "\n", "\r", "\t", "\u{8}", "\u{b}", "\u{c}",
        "\u{1}", "\u{7f}", "é", "表", "😀", "\u{2028}", "NULL", "null", "\\N", "\\.", "\\x00", "1e5", "true", "/", "<", "&",
    ];
    let length = if random.one_in(20) { 3000 } else { random.below(12) };
    (0..length).map(|_| pick(random, PIECES)).collect()
}

fn word(random: &mut Random) -> String {
    (0..=random.below(6)).map(|_| pick(random, &["a", "b", "x", "ž", "Q", "_"])).collect()
}

fn json(random: &mut Random, depth: u32) -> String {
    let string = |random: &mut Random| serde_json::to_string(&text(random)).expect("text is JSON");
    match random.below(if depth == 0 { 5 } else { 7 }) {
        0 => float(random, false),
        1 => pick(random, &["true", "false", "123456789012345678901234567890", "-0", "1.50", "1E+2"]).to_owned(),
        2..=4 => string(random),
        5 => {
            let fields: Vec<String> = (0..random.below(4)).map(|_| format!("{} :{}", string(random), json(random, depth - 1))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        _ => {
            let elements: Vec<String> = (0..random.below(4)).map(|_| json(random, depth - 1)).collect();
            format!("[{},  null]", elements.into_iter().chain(["0".to_owned()]).collect::<Vec<_>>().join(","))
        }
    }
}

/// Any bits that are a number.
fn float(random: &mut Random, single: bool) -> String {
    let double = f64::from_bits(random.next());
    #[expect(clippy::cast_possible_truncation, reason = "any bits will do")]
    let real = f32::from_bits(random.next() as u32);
    match single {
        true if real.is_finite() => format!("{real:e}"),
        false if double.is_finite() => format!("{double:e}"),
        _ => "0.1".to_owned(),
    }
}

fn coordinate(random: &mut Random) -> String {
    match random.below(4) {
        0 => "0.1".to_owned(),
        1 => format!("{}", signed(random) % 1000),
        _ => format!("{}.{}", signed(random) % 1000, digits(random, 8)),
    }
}

fn pairs(random: &mut Random, count: u32) -> String {
    (0..count).map(|_| format!("({},{})", coordinate(random), coordinate(random))).collect::<Vec<_>>().join(",")
}

/// Days around the epoch, from 4713 BC to `days` after.
fn day(random: &mut Random, days: u64) -> i64 {
    let days = if random.one_in(2) { 60_000 } else { days };
    i64::try_from(random.next() % days).expect("days are few") - if random.one_in(4) { 2_440_000 } else { 10_000 }
}

fn moment(random: &mut Random) -> String {
    let microseconds = if random.one_in(3) { 0 } else { random.next() % 86_400_000_000 };
    // From the year 1970 by days, as text would have to tell years before Christ.
    let (seconds, microseconds) = (microseconds / 1_000_000, microseconds % 1_000_000);
    format!("'epoch'::timestamp + '{} days {seconds}.{microseconds:06} seconds'::interval", day(random, 106_000_000))
}

fn range(random: &mut Random, mut bound: impl FnMut(&mut Random) -> String, constructor: &str) -> String {
    let (a, b) = (bound(random), bound(random));
    match random.below(6) {
        0 => "'empty'".to_owned(),
        1 => format!("{constructor}(NULL, {a})"),
        2 => format!("{constructor}({a}, NULL, '()')"),
        _ => format!("{constructor}(least({a}, {b}), greatest({a}, {b}), '{}')", pick(random, &["[]", "[)", "(]", "()"])),
    }
}

fn several(random: &mut Random, range: fn(&mut Random) -> String, constructor: &str, of: &str) -> String {
    let ranges: Vec<String> = (0..random.below(4)).map(|_| format!("({})::{of}", range(random))).collect();
    format!("{constructor}({})", ranges.join(", "))
}

fn int_range(random: &mut Random) -> String {
    range(random, |random| (signed(random) % 1_000_000).to_string(), "int4range")
}

fn numeric_range(random: &mut Random) -> String {
    range(random, |random| format!("{}.{}", signed(random), digits(random, 5)), "numrange")
}

fn date_range(random: &mut Random) -> String {
    range(random, |random| format!("('epoch'::date + {})", day(random, 1_000_000)), "daterange")
}

fn moment_range(random: &mut Random) -> String {
    range(random, |random| format!("(({}) AT TIME ZONE 'UTC')", moment(random)), "tstzrange")
}

type Scalar = (&'static str, fn(&mut Random) -> String);

const SCALARS: &[Scalar] = &[
    ("smallint", |random| or(random, &["-32768", "32767"], |random| (signed(random) % 32_768).to_string())),
    ("int", |random| or(random, &["-2147483648", "2147483647"], |random| (signed(random) % 2_147_483_648).to_string())),
    ("bigint", |random| or(random, &["-9223372036854775808", "9007199254740993"], |random| signed(random).to_string())),
    ("real", |random| or(random, &["NaN", "Infinity", "-Infinity", "-0", "1e-45"], |random| float(random, true))),
    ("double precision", |random| or(random, &["NaN", "Infinity", "-Infinity", "-0", "5e-324"], |random| float(random, false))),
    ("numeric", |random| {
        or(random, &["NaN", "Infinity", "-Infinity", "0.000", "1e1000", "1e-1000"], |random| {
            let (whole, fraction) = (1 + random.below(200), 1 + random.below(100));
            format!("{}{}.{}", pick(random, &["", "-"]), digits(random, whole), digits(random, fraction))
        })
    }),
    ("numeric(12,3)", |random| or(random, &["NaN", "-0.001"], |random| (signed(random) % 1_000_000_000).to_string())),
    ("money", |random| format!("{} * 0.01::numeric", signed(random) % 10_000_000_000)),
    ("boolean", |random| or(random, &["t"], |_| "f".to_owned())),
    ("text", |random| literal(&text(random))),
    ("varchar(100)", |random| format!("left({}, 100)", literal(&text(random)))),
    ("char(7)", |random| format!("left({}, 7)", literal(&text(random)))),
    ("\"char\"", |random| or(random, &["", "\\", "\""], |random| pick(random, &["a", "Z", ",", " "]).to_owned())),
    ("name", |random| format!("left({}, 15)", literal(&text(random)))),
    ("citext", |random| literal(&text(random))),
    ("mood", |random| or(random, &["so \"so\", no"], |random| pick(random, &["sad", "NULL", "žuč"]).to_owned())),
    ("bytea", |random| {
        let length = if random.one_in(20) { 3000 } else { random.below(20) };
        format!("'\\x{}'", hex(random, length))
    }),
    ("bit(11)", |random| literal(&bits(random, 11))),
    ("varbit", |random| {
        let length = random.below(70);
        literal(&bits(random, length))
    }),
    ("uuid", |random| literal(&hex(random, 16))),
    ("date", |random| match random.below(6) {
        0 => "'infinity'".to_owned(),
        1 => "'-infinity'".to_owned(),
        _ => format!("'epoch'::date + {}", day(random, 2_140_000_000)),
    }),
    ("time", |random| {
        or(random, &["24:00:00", "00:00:00", "23:59:59.999999"], |random| format!("12:34:{}.{}", 10 + random.below(50), digits(random, 6)))
    }),
    ("time(2)", |random| {
        or(random, &["24:00:00", "23:59:59.999"], |random| format!("12:34:{}.{}", 10 + random.below(50), digits(random, 6)))
    }),
    ("timetz", |random| {
        let zone = pick(random, &["+00", "-15:59:59", "+15:59:59", "+05:30", "-03"]);
        or(random, &["24:00:00+00"], |random| format!("01:02:{}.{}{zone}", 10 + random.below(50), digits(random, 3)))
    }),
    ("timestamp", |random| if random.one_in(6) { or(random, &["infinity"], |_| "-infinity".to_owned()) } else { moment(random) }),
    ("timestamp(0)", moment),
    ("timestamptz", |random| {
        if random.one_in(6) {
            or(random, &["infinity"], |_| "-infinity".to_owned())
        } else {
            format!("({}) AT TIME ZONE 'UTC'", moment(random))
        }
    }),
    ("interval", |random| {
        let (months, days, seconds) = (signed(random) % 1_000_000, signed(random) % 1_000_000_000, signed(random) % 1_000_000_000);
        format!("make_interval(months => {months}, days => {days}, secs => {seconds}.{})", digits(random, 6))
    }),
    ("inet", |random| {
        or(random, &["::/0", "1.2.3.4"], |random| format!("{}.0.{}.7/{}", random.below(256), random.below(256), random.below(33)))
    }),
    ("inet", |random| literal(&format!("{:x}::{:x}:1/{}", random.below(65_536), random.below(65_536), random.below(129)))),
    ("cidr", |random| or(random, &["::/0", "0.0.0.0/0"], |random| format!("{}.{}.0.0/16", random.below(256), random.below(256)))),
    ("macaddr", |random| literal(&hex(random, 6))),
    ("macaddr8", |random| literal(&hex(random, 8))),
    ("point", |random| or(random, &["(NaN,Infinity)", "(-0,1e-300)"], |random| pairs(random, 1))),
    ("line", |random| literal(&format!("{{{},1.5,{}}}", coordinate(random), coordinate(random)))),
    ("lseg", |random| literal(&format!("[{}]", pairs(random, 2)))),
    ("box", |random| literal(&pairs(random, 2))),
    ("path", |random| {
        let (open, close) = if random.one_in(2) { ('[', ']') } else { ('(', ')') };
        let count = 1 + random.below(5);
        literal(&format!("{open}{}{close}", pairs(random, count)))
    }),
    ("polygon", |random| {
        let count = 1 + random.below(5);
        literal(&format!("({})", pairs(random, count)))
    }),
    ("circle", |random| literal(&format!("<{},{}.25>", pairs(random, 1), random.below(100)))),
    ("json", |random| literal(&json(random, 3))),
    ("jsonb", |random| literal(&json(random, 3))),
    ("jsonpath", |random| literal(&format!("$.{}[*] ? (@ > {})", word(random), random.below(100)))),
    ("xml", |random| or(random, &["", "<a/>"], |random| format!("<a b=\"{}\">{}&amp;</a>", word(random), word(random)))),
    ("tsvector", |random| {
        format!(
            "array_to_tsvector(ARRAY[{}, {}])",
            literal(&format!("a{}", text(random).chars().take(9).collect::<String>())),
            literal(&word(random))
        )
    }),
    ("tsquery", |random| literal(&format!("{} & !({}:*AB | {} <2> {})", word(random), word(random), word(random), word(random)))),
    ("pg_lsn", |random| literal(&format!("{:X}/{:X}", random.below(u32::MAX), random.below(u32::MAX)))),
    ("pg_snapshot", |random| literal(&format!("{0}:{1}:{0}", 10 + random.below(10), 30 + random.below(10)))),
    ("oid", |random| or(random, &["4294967295"], |random| random.below(u32::MAX).to_string())),
    ("xid", |random| literal(&random.below(u32::MAX).to_string())),
    ("cid", |random| literal(&random.below(u32::MAX).to_string())),
    ("xid8", |random| or(random, &["18446744073709551615"], |random| random.next().to_string())),
    ("tid", |random| literal(&format!("({},{})", random.below(u32::MAX), 1 + random.below(60_000)))),
    ("regclass", |random| or(random, &["pg_class", "-"], |_| "public.value".to_owned())),
    ("regtype", |random| or(random, &["int4", "-"], |_| "public.mood".to_owned())),
    ("regproc", |random| or(random, &["now"], |_| "pg_catalog.sha256".to_owned())),
    ("regprocedure", |random| or(random, &["-"], |_| "lower(text)".to_owned())),
    ("regrole", |random| or(random, &["-"], |_| "walgate".to_owned())),
    ("regnamespace", |random| or(random, &["public"], |_| "pg_toast".to_owned())),
    ("regconfig", |random| or(random, &["simple"], |_| "german".to_owned())),
    ("aclitem", |random| or(random, &["=r/postgres"], |_| "walgate=arw*/postgres".to_owned())),
    ("refcursor", |random| literal(&text(random))),
    ("hstore", |random| format!("hstore(ARRAY[{}, {}, {}, NULL])", literal(&text(random)), literal(&text(random)), literal(&word(random)))),
    ("ltree", |random| or(random, &[""], |random| format!("Top.A_{}.b", random.below(100)))),
    ("ean13", |random| or(random, &["9780393040029"], |_| "4006381333931".to_owned())),
    ("cube", |random| literal(&format!("{},{}", coordinate(random), coordinate(random)))),
    ("int4range", int_range),
    ("numrange", numeric_range),
    ("daterange", date_range),
    ("tstzrange", moment_range),
    ("tsrange", |random| range(random, |random| format!("({})", moment(random)), "tsrange")),
    ("floats", |random| range(random, |random| format!("{}::float8", literal(&float(random, false))), "floats")),
    ("int4multirange", |random| several(random, int_range, "int4multirange", "int4range")),
    ("nummultirange", |random| several(random, numeric_range, "nummultirange", "numrange")),
    ("tstzmultirange", |random| several(random, moment_range, "tstzmultirange", "tstzrange")),
];
