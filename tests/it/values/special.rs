//! Each value that is easily lost or distorted, with its JSON written down by hand.

use super::back;
use super::thrice::{self, Column, Form};
use crate::lab::postgres::Postgres;

/// Extensions and types of our own.
pub(crate) const EXTENSIONS: &str = r#"
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION isn; CREATE EXTENSION cube; CREATE EXTENSION seg;
CREATE TYPE mood AS ENUM ('sad', 'so "so", no', 'NULL', 'žuč');
CREATE TYPE pair AS (a int, "B b" text);
CREATE TYPE nest AS (p pair, t timestamptz, f float8[]);
CREATE TYPE floats AS RANGE (subtype = float8);
CREATE DOMAIN amount AS numeric(12,2) CHECK (value > -100);
CREATE DOMAIN total AS amount;
CREATE DOMAIN big AS bigint;
CREATE DOMAIN doc AS jsonb;
CREATE DOMAIN moment AS timestamptz;
CREATE DOMAIN grid AS int[];
CREATE DOMAIN grid2 AS grid;
CREATE DOMAIN moods AS mood[];
CREATE DOMAIN codes AS oidvector;
CREATE DOMAIN spot AS box;
"#;

/// What the domains above are made from.
const DOMAINS: &[(&str, &str)] = &[("doc", "jsonb"), ("grid", "int[]"), ("grid2", "grid"), ("moods", "mood[]")];

/// Type, SQL expression, JSON.
const SPECIAL: &[(&str, &str, &str)] = &[
    // Numbers.
    ("smallint", "-32768", "-32768"),
    ("int", "-2147483648", "-2147483648"),
    ("bigint", "9007199254740993", "9007199254740993"),
    ("bigint", "-9223372036854775808", "-9223372036854775808"),
    ("real", "'0.1'", "0.1"),
    ("real", "'1e-45'", "1e-45"),
    ("real", "'3.4028235e38'", "3.4028235e+38"),
    ("real", "'NaN'", r#""NaN""#),
    ("double precision", "0.1::float8 + 0.2", "0.30000000000000004"),
    ("double precision", "'-0'", "-0"),
    ("double precision", "'5e-324'", "5e-324"),
    ("double precision", "'1.7976931348623157e308'", "1.7976931348623157e+308"),
    ("double precision", "'NaN'", r#""NaN""#),
    ("double precision", "'Infinity'", r#""Infinity""#),
    ("double precision", "'-Infinity'", r#""-Infinity""#),
    ("numeric", "1.500", r#""1.500""#),
    ("numeric", "'NaN'", r#""NaN""#),
    ("numeric", "'Infinity'", r#""Infinity""#),
    ("numeric", "'-Infinity'", r#""-Infinity""#),
    ("numeric(5,-2)", "123456", r#""123500""#),
    ("money", "-1234567.89", r#""-$1,234,567.89""#),
    ("money", "'92233720368547758.07'", r#""$92,233,720,368,547,758.07""#),
    ("boolean", "true", "true"),
    ("boolean", "false", "false"),
    ("int", "NULL", "null"),
    // Object identifiers.
    ("oid", "4000000000", "4000000000"),
    ("xid", "'4294967295'", "4294967295"),
    ("cid", "'4294967295'", "4294967295"),
    ("xid8", "'18446744073709551615'", "18446744073709551615"),
    ("tid", "'(42,7)'", r#""(42,7)""#),
    ("pg_lsn", "'FFFFFFFF/FFFFFFFF'", r#""FFFFFFFF/FFFFFFFF""#),
    ("regclass", "'pg_class'", r#""pg_class""#),
    ("regclass", "'public.value'", r#""public.value""#),
    ("regclass", "0", r#""-""#),
    ("regtype", "'mood'", r#""public.mood""#),
    ("regproc", "'now'", r#""now""#),
    ("regprocedure", "'pg_catalog.lower(text)'", r#""lower(text)""#),
    ("regrole", "'walgate'", r#""walgate""#),
    ("regnamespace", "'pg_catalog'", r#""pg_catalog""#),
    ("oidvector", "'3 1 2'", r#""3 1 2""#),
    ("int2vector", "'-1 32767'", r#""-1 32767""#),
    ("pg_snapshot", "'10:20:10,14,15'", r#""10:20:10,14,15""#),
    // Text.
    ("text", "''", r#""""#),
    ("text", "'NULL'", r#""NULL""#),
    ("text", r"E'\\N'", r#""\\N""#),
    ("text", r#"E'q" b\\ n\n r\r t\t b\b f\f v\x0b e\x1b d\x7f'"#, "\"q\\\" b\\\\ n\\n r\\r t\\t b\\b f\\f v\\u000b e\\u001b d\u{7f}\""),
    ("text", r"U&'\+01F600 \2028 \FEFF'", "\"\u{1F600} \u{2028} \u{FEFF}\""),
    ("char(5)", "'ab'", r#""ab   ""#),
    ("varchar(5)", "'ab '", r#""ab ""#),
    (r#""char""#, "'x'", r#""x""#),
    ("name", "'a name'", r#""a name""#),
    ("citext", "'MiXed'", r#""MiXed""#),
    ("ltree", "'Top.Science.Astronomy'", r#""Top.Science.Astronomy""#),
    ("lquery", "'Top.*{1,2}.a|b'", r#""Top.*{1,2}.a|b""#),
    ("ean13", "'9780393040029'", r#""978-0-393-04002-9""#),
    ("cube", "'(1,2),(3,4.5)'", r#""(1, 2),(3, 4.5)""#),
    ("seg", "'1.50 .. 2.00'", r#""1.50 .. 2.00""#),
    ("hstore", r#"'a=>1, "q\"=>"=>NULL'"#, r#""\"a\"=>\"1\", \"q\\\"=>\"=>NULL""#),
    ("mood", r#"'so "so", no'"#, r#""so \"so\", no""#),
    ("mood", "'NULL'", r#""NULL""#),
    ("xml", "'<?xml version=\"1.0\"?><a b=\"1\">&lt;ž</a>'", r#""<a b=\"1\">&lt;ž</a>""#),
    ("xml", "'no element'", r#""no element""#),
    ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", r#""a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11""#),
    ("tsvector", "'fat:2,4B cat:3'", r#""'cat':3 'fat':2,4B""#),
    ("tsquery", "'a & !b:*C'", r#""'a' & !'b':*C""#),
    ("jsonpath", "'$.a[*] ? (@ > 1)'", r#""$.\"a\"[*]?(@ > 1)""#),
    ("aclitem", "'walgate=r/postgres'", r#""walgate=r/postgres""#),
    ("refcursor", "'a cursor'", r#""a cursor""#),
    // Bytes and bits.
    ("bytea", r"''", r#""""#),
    ("bytea", r"'\x00ff0a5c27'", r#""AP8KXCc=""#),
    ("bit(4)", "B'0101'", r#""0101""#),
    ("varbit", "B''", r#""""#),
    ("varbit", "B'000000000'", r#""000000000""#),
    // Dates and times.
    ("date", "'1582-10-05'", r#""1582-10-05""#),
    ("date", "'infinity'", r#""infinity""#),
    ("date", "'-infinity'", r#""-infinity""#),
    ("date", "'4713-11-24 BC'", r#""4713-11-24 BC""#),
    ("date", "'5874897-12-31'", r#""5874897-12-31""#),
    ("time", "'24:00'", r#""24:00:00""#),
    ("time", "'23:59:59.999999'", r#""23:59:59.999999""#),
    ("timetz", "'24:00:00-15:59:59'", r#""24:00:00-15:59:59""#),
    ("timetz", "'01:02:03.4+05:30'", r#""01:02:03.4+05:30""#),
    ("timestamp", "'2024-02-29 23:59:59.999999'", r#""2024-02-29T23:59:59.999999""#),
    ("timestamp", "'0001-01-01'", r#""0001-01-01T00:00:00""#),
    ("timestamp", "'infinity'", r#""infinity""#),
    ("timestamp", "'0044-03-15 10:00 BC'", r#""0044-03-15 10:00:00 BC""#),
    ("timestamp", "'294276-12-31 23:59:59.999999'", r#""294276-12-31 23:59:59.999999""#),
    ("timestamptz", "'2024-01-02 03:04:05.5+02'", r#""2024-01-02T01:04:05.5Z""#),
    ("timestamptz", "'-infinity'", r#""-infinity""#),
    ("timestamptz", "'4714-11-24 00:00:00+00 BC'", r#""4714-11-24 00:00:00+00 BC""#),
    ("timestamptz", "'10000-01-01 00:00:00+00'", r#""10000-01-01 00:00:00+00""#),
    ("interval", "'1 year -2 mons 3 days -04:05:06.7'", r#""10 mons 3 days -04:05:06.7""#),
    ("interval", "'-178000000 years'", r#""-178000000 years""#),
    ("interval", "'0'", r#""00:00:00""#),
    // Networks and geometry.
    ("inet", "'192.168.1.5/24'", r#""192.168.1.5/24""#),
    ("inet", "'::ffff:1.2.3.4'", r#""::ffff:1.2.3.4""#),
    ("cidr", "'10.0.0.0/8'", r#""10.0.0.0/8""#),
    ("macaddr", "'08-00-2B-01-02-03'", r#""08:00:2b:01:02:03""#),
    ("macaddr8", "'08002b0102030405'", r#""08:00:2b:01:02:03:04:05""#),
    ("point", "'(0.1,-Infinity)'", r#""(0.1,-Infinity)""#),
    ("line", "'{1,2,3}'", r#""{1,2,3}""#),
    ("lseg", "'[(0,0),(1,1)]'", r#""[(0,0),(1,1)]""#),
    ("box", "'(0,0),(1,1)'", r#""(1,1),(0,0)""#),
    ("path", "'[(0,0),(1,1)]'", r#""[(0,0),(1,1)]""#),
    ("path", "'((0,0),(1,1))'", r#""((0,0),(1,1))""#),
    ("polygon", "'((0,0),(1,1),(1,0))'", r#""((0,0),(1,1),(1,0))""#),
    ("circle", "'<(0.1,0),2>'", r#""<(0.1,0),2>""#),
    // Ranges and composites.
    ("int4range", "'[1,5]'", r#""[1,6)""#),
    ("int4range", "'empty'", r#""empty""#),
    ("numrange", "'(,1.50]'", r#""(,1.50]""#),
    ("tstzrange", "'[2024-01-02 03:04:05+02,infinity)'", r#""[\"2024-01-02 01:04:05+00\",infinity)""#),
    ("floats", "'[0.1,0.30000000000000004)'", r#""[0.1,0.30000000000000004)""#),
    ("int4multirange", "'{[1,2],[5,6]}'", r#""{[1,3),[5,7)}""#),
    ("datemultirange", "'{}'", r#""{}""#),
    ("pair", r#"ROW(1, 'a "b", \c')"#, r#""(1,\"a \"\"b\"\", \\\\c\")""#),
    ("pair", "ROW(NULL, NULL)", r#""(,)""#),
    ("pair", "ROW(NULL, '')", r#""(,\"\")""#),
    (
        "nest",
        "ROW(ROW(1, 'x')::pair, '2024-01-02 03:04:05+02', '{0.1,NULL}')",
        r#""(\"(1,x)\",\"2024-01-02 01:04:05+00\",\"{0.1,NULL}\")""#,
    ),
    // JSON.
    ("json", r#"'{"a": 1.50,  "a":2, "u":"\u0000\ud83d\ude00"}'"#, r#"{"a": 1.50,  "a":2, "u":"\u0000\ud83d\ude00"}"#),
    ("json", "'[1e400, -0, 123456789012345678901234567890, 1E5]'", "[1e400, -0, 123456789012345678901234567890, 1E5]"),
    ("json", r#"'"\ud800"'"#, r#""\ud800""#),
    ("json", "'\"null\"'", r#""null""#),
    ("jsonb", r#"'{"b":1.50,"a":null,"a":[true]}'"#, r#"{"a": [true], "b": 1.50}"#),
    ("jsonb", r#"'"text"'"#, r#""text""#),
    // Domains.
    ("total", "7", r#""7.00""#),
    ("big", "9007199254740993", "9007199254740993"),
    ("doc", r#"'{"a":1}'"#, r#"{"a": 1}"#),
    ("moment", "'2024-01-02 03:04:05+02'", r#""2024-01-02T01:04:05Z""#),
    ("grid2", "'{{1,2},{3,NULL}}'", "[[1,2],[3,null]]"),
    ("moods", r#"'{sad,NULL,"NULL"}'"#, r#"["sad",null,"NULL"]"#),
    ("codes", "'1 2'", r#""1 2""#),
    // Arrays.
    ("int[]", "'{}'", "[]"),
    ("int[]", "'{{{1}},{{NULL}}}'", "[[[1]],[[null]]]"),
    ("int[]", "'[2:3]={1,2}'", r#""[2:3]={1,2}""#),
    ("int[]", "'[0:0][-1:0]={{1,2}}'", r#""[0:0][-1:0]={{1,2}}""#),
    ("bigint[]", "'{9007199254740993}'", "[9007199254740993]"),
    ("float8[]", "'{NaN,-Infinity,-0,0.1,NULL}'", r#"["NaN","-Infinity",-0,0.1,null]"#),
    ("numeric[]", "'{1.50,NaN}'", r#"["1.50","NaN"]"#),
    ("boolean[]", "'{t,f,NULL}'", "[true,false,null]"),
    ("text[]", r#"ARRAY['', 'NULL', NULL, 'a "b"', 'c\d', '{}', ',', ' ']"#, r#"["","NULL",null,"a \"b\"","c\\d","{}",","," "]"#),
    ("timestamptz[]", "'{2024-01-02 03:04:05+02,infinity}'", r#"["2024-01-02T01:04:05Z","infinity"]"#),
    ("date[]", "'{2024-01-02,0044-03-15 BC}'", r#"["2024-01-02","0044-03-15 BC"]"#),
    ("bytea[]", r"ARRAY['\x01'::bytea, '', NULL]", r#"["AQ==","",null]"#),
    ("bit(3)[]", "'{101,NULL}'", r#"["101",null]"#),
    ("money[]", "ARRAY[1234.5::money]", r#"["$1,234.50"]"#),
    ("interval[]", "'{1 day 2 hours}'", r#"["1 day 02:00:00"]"#),
    ("box[]", "ARRAY[box '(0,0),(1,1)', box '(2,2),(3,3)']", r#"["(1,1),(0,0)","(3,3),(2,2)"]"#),
    ("spot[]", "ARRAY[box '(0,0),(1,1)', NULL, box '(2,2),(3,3)']::spot[]", r#"["(1,1),(0,0)",null,"(3,3),(2,2)"]"#),
    ("mood[]", r#"'{sad,NULL,"NULL"}'"#, r#"["sad",null,"NULL"]"#),
    ("pair[]", "ARRAY[ROW(1, 'x y')::pair, NULL]", r#"["(1,\"x y\")",null]"#),
    ("int4range[]", "'{\"[1,2)\",empty}'", r#"["[1,2)","empty"]"#),
    ("hstore[]", "ARRAY['a=>1'::hstore]", r#"["\"a\"=>\"1\""]"#),
    ("citext[]", "'{A,b}'", r#"["A","b"]"#),
    ("total[]", "'{1,2.5,NULL}'", r#"["1.00","2.50",null]"#),
    ("moment[]", "'{2024-01-02 03:04:05+02}'", r#"["2024-01-02T01:04:05Z"]"#),
    ("grid[]", "ARRAY['{1,2}'::grid, '{}'::grid, NULL::grid, '[2:2]={7}'::grid]", r#"[[1,2],[],null,"[2:2]={7}"]"#),
    ("grid[]", r#"'{{"{1}"}}'"#, r#""{{\"{1}\"}}""#),
    ("moods[]", "ARRAY['{sad,NULL}'::moods]", r#"[["sad",null]]"#),
    ("jsonb[]", r#"ARRAY['{"a":[1]}'::jsonb, '[]', NULL]"#, r#"[{"a": [1]},[],null]"#),
    ("jsonb[]", "ARRAY['null'::jsonb, NULL]", r#""{\"null\",NULL}""#),
    ("jsonb[]", "ARRAY[ARRAY['1'::jsonb]]", r#""{{1}}""#),
    ("name[]", "ARRAY['a'::name]", r#"["a"]"#),
    ("xid8[]", "ARRAY['18446744073709551615'::xid8]", "[18446744073709551615]"),
    ("tsvector[]", "ARRAY['a b'::tsvector]", r#"["'a' 'b'"]"#),
];

/// All of them in one row, wherever it is read; and each comes back as the value it was.
#[track_caller]
pub(crate) fn check(postgres: &Postgres, database: &str) {
    // Negative scales came with 15.
    let special: Vec<_> = SPECIAL.iter().filter(|(of_type, ..)| postgres.version() >= 15 || !of_type.contains(",-")).copied().collect();
    let columns: Vec<Column> = special.iter().map(|(of_type, ..)| column(of_type)).collect();
    let values: Vec<String> = special.iter().map(|(_, value, _)| (*value).to_owned()).collect();
    let shown = thrice::read(postgres, database, &columns, &[values]);
    let [row] = shown.as_slice() else { panic!("one row") };
    let wrong = |(at, (of_type, value, expected)): (usize, &(&str, &str, &str))| {
        let found = thrice::column(row, at);
        (found != *expected).then(|| format!("{of_type} {value}\n  expected {expected}\n     found {found}"))
    };
    let wrong: Vec<String> = special.iter().enumerate().filter_map(wrong).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    back::check(&postgres.session_in(database), &columns, &shown);
}

/// A column of a type above or of a built-in one.
pub(crate) fn column(of_type: &str) -> Column {
    let base = DOMAINS.iter().find(|(domain, _)| *domain == of_type).map_or(of_type, |(_, base)| base);
    let form = match base.strip_suffix("[]") {
        Some(element) => Form::Array(Box::new(column(element))),
        None if base != of_type => column(base).form,
        None => match base {
            "json" | "jsonb" => Form::Json,
            "bytea" => Form::Base64,
            _ => Form::Text,
        },
    };
    Column { of_type: of_type.to_owned(), form }
}
