use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

const PLAIN: Style = Style::Plain(Plain { bigint_as_string: false, json_as_text: false });

fn array_of(element: Kind) -> Kind {
    Kind::Array { element: Box::new(element), delimiter: b',' }
}

fn written(kind: &Kind, text: &[u8]) -> String {
    let mut out = b"before ".to_vec();
    write(kind, text, &mut out);
    String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned()
}

/// `text` as the server prints it becomes exactly `expect`.
fn check(kind: &Kind, text: &str, expect: &str) {
    assert_eq!(written(kind, text.as_bytes()), expect, "{kind:?} `{text}`");
}

#[test]
fn numbers_keep_the_digits_of_the_server() {
    for text in ["0", "-1", "2147483647"] {
        check(&Kind::Integer, text, text);
    }
    for text in ["0", "-0", "0.1", "3.14", "1e+20", "1e-07", "1.7976931348623157e+308", "5e-324", "30000"] {
        check(&Kind::Float, text, text);
    }
    check(&Kind::Integer, "-9223372036854775808", "-9223372036854775808");
}

#[test]
fn what_is_no_json_number_is_a_string() {
    for text in ["NaN", "Infinity", "-Infinity", "", "-", "1.", ".5", "01", "1e", "1e+", "+1", "1.5.2", "0x1F", "1 ", "1e5e5", "1.e5"] {
        check(&Kind::Float, text, &format!("\"{text}\""));
    }
    for text in ["1.5", "1e5", "", "007", "--1", "NULL"] {
        check(&Kind::Integer, text, &format!("\"{text}\""));
    }
}

#[test]
fn booleans_are_true_and_false() {
    check(&Kind::Boolean, "t", "true");
    check(&Kind::Boolean, "f", "false");
    check(&Kind::Boolean, "maybe", r#""maybe""#);
}

#[test]
fn times_are_iso_8601_and_what_iso_8601_lacks_is_the_text_of_the_server() {
    check(&Kind::Timestamp, "2024-01-02 03:04:05.678901", r#""2024-01-02T03:04:05.678901""#);
    check(&Kind::Timestamp, "2024-01-02 03:04:05", r#""2024-01-02T03:04:05""#);
    check(&Kind::TimestampTz, "2024-01-02 03:04:05.6+00", r#""2024-01-02T03:04:05.6Z""#);
    for text in ["infinity", "-infinity", "0044-03-15 10:00:00 BC", "10000-01-01 00:00:00", "2024-01-02 03:04:05.", "2024-01-02"] {
        check(&Kind::Timestamp, text, &format!("\"{text}\""));
    }
    for text in ["infinity", "0044-03-15 10:00:00+00 BC", "294276-12-31 23:59:59+00", "2024-01-02 03:04:05+02", "2024-01-02 03:04:05"] {
        check(&Kind::TimestampTz, text, &format!("\"{text}\""));
    }
}

#[test]
fn bytes_are_base64() {
    check(&Kind::Bytes, r"\x", r#""""#);
    check(&Kind::Bytes, r"\x01", r#""AQ==""#);
    check(&Kind::Bytes, r"\x010203ff", r#""AQID/w==""#);
    check(&Kind::Bytes, r"\x0", r#""\\x0""#);
    check(&Kind::Bytes, r"\x010g", r#""\\x010g""#);
    check(&Kind::Bytes, "abc", r#""abc""#);
}

#[test]
fn json_is_itself_on_one_line() {
    check(&Kind::Json, r#"{"a": [1, 2], "b":  1.50}"#, r#"{"a": [1, 2], "b":  1.50}"#);
    check(&Kind::Json, "{\n\t\"a\":\r\n1}\n", "{ \t\"a\":  1} ");
    check(&Kind::Json, r#""a\nb""#, r#""a\nb""#);
    check(&Kind::Json, "null", "null");
    check(&Kind::Json, "{'a': 1}", r#""{'a': 1}""#);
    check(&Kind::Json, "", r#""""#);
    check(&Kind::Json, "1 2", r#""1 2""#);
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    check(&Kind::Json, &deep, &deep);
}

#[test]
fn text_is_escaped_where_json_asks_for_it_and_nowhere_else() {
    check(&Kind::Text, "1.500", r#""1.500""#);
    check(&Kind::Text, "say \"hi\"\\\n\r\t\u{8}\u{c}\u{1}\u{1f}\u{7f}", "\"say \\\"hi\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u001f\u{7f}\"");
    check(&Kind::Text, "Größe 表 😀 / \u{2028}", "\"Größe 表 😀 / \u{2028}\"");
    assert_eq!(written(&Kind::Text, b"caf\xe9"), r#"{"base64":"Y2Fm6Q=="}"#);
    assert_eq!(written(&array_of(Kind::Text), b"{a,\xe9}"), r#"["a",{"base64":"6Q=="}]"#);
    assert_eq!(written(&Kind::Json, b"\"\xe9\""), r#"{"base64":"Iuki"}"#);
}

#[test]
fn arrays_are_arrays() {
    let check_text = |text, expect| check(&array_of(Kind::Text), text, expect);
    check_text("{}", "[]");
    check_text("{a,NULL,\"NULL\",null,\"\"}", r#"["a",null,"NULL","null",""]"#);
    check_text(r#"{"a b","say \"hi\"","back\\slash","{}",","}"#, r#"["a b","say \"hi\"","back\\slash","{}",","]"#);
    check_text(r#"{"\"","\\","a\"b\"c"}"#, r#"["\"","\\","a\"b\"c"]"#);
    check(&array_of(Kind::Integer), "{{1,2},{3,NULL}}", "[[1,2],[3,null]]");
    check(&array_of(Kind::Integer), "{{{{{{1}}}}}}", "[[[[[[1]]]]]]");
    check(&array_of(Kind::Float), "{1.5,NaN}", r#"[1.5,"NaN"]"#);
    check(&array_of(Kind::Timestamp), r#"{"2024-01-02 03:04:05",infinity}"#, r#"["2024-01-02T03:04:05","infinity"]"#);
    check(&array_of(Kind::Bytes), r#"{"\\x0102","\\x"}"#, r#"["AQI=",""]"#);
    check(&array_of(Kind::Json), r#"{"{\"a\": [1]}",NULL,1}"#, r#"[{"a": [1]},null,1]"#);
    check(&array_of(array_of(Kind::Integer)), r#"{"{1,2}","{}"}"#, "[[1,2],[]]");
    let boxes = Kind::Array { element: Box::new(Kind::Text), delimiter: b';' };
    check(&boxes, "{(1,1),(0,0);(2,2),(1,1)}", r#"["(1,1),(0,0)","(2,2),(1,1)"]"#);
}

#[test]
fn an_array_that_could_not_be_read_back_is_the_text_of_the_server() {
    let check_text = |element, text: &str| check(&array_of(element), text, &serde_json::to_string(text).unwrap());
    check_text(Kind::Integer, "[2:3]={1,2}");
    check_text(Kind::Integer, "[0:0][-2:-1]={{1,2}}");
    check_text(Kind::Json, r#"{{"[1]",2}}"#);
    check_text(Kind::Json, r#"{"null",NULL}"#);
    check_text(Kind::Json, r#"{" null "}"#);
    check_text(array_of(Kind::Integer), r#"{{"{1}"}}"#);
    check(&array_of(array_of(Kind::Integer)), r#"{"[2:2]={1}"}"#, r#"["[2:2]={1}"]"#);
}

#[test]
fn what_is_no_array_is_a_string() {
    let cases = [
        "",
        "1",
        "{",
        "}",
        "{1",
        "{1,}",
        "{,1}",
        "{}}",
        "{1}x",
        "{1}{2}",
        "{\"1}",
        "{\"1\"x}",
        "{1\"2\"}",
        "{1\\2}",
        "[2:3]{1}",
        "[x]={1}",
        "{a{b}}",
        "{{{{{{{1}}}}}}}",
    ];
    for text in cases {
        let string = serde_json::to_string(text).unwrap();
        check(&array_of(Kind::Integer), text, &string);
    }
}

#[test]
fn the_kind_of_a_built_in_type_follows_from_its_number() {
    let none = HashMap::<Oid, TypeFacts>::new();
    let check = |built_in: Type, expect: Kind| assert_eq!(kind_of(Oid::new(built_in.oid()), -1, &none, PLAIN), expect, "{built_in}");
    check(Type::INT4, Kind::Integer);
    check(Type::INT8, Kind::Integer);
    check(Type::NUMERIC, Kind::Text);
    check(Type::UUID, Kind::Text);
    check(Type::NAME, Kind::Text);
    check(Type::POINT, Kind::Text);
    check(Type::INT4_RANGE, Kind::Text);
    check(Type::JSONB, Kind::Json);
    check(Type::TIMESTAMPTZ_ARRAY, array_of(Kind::TimestampTz));
    check(Type::BOX_ARRAY, Kind::Array { element: Box::new(Kind::Text), delimiter: b';' });
    check(Type::INT2_VECTOR, Kind::Text);
    check(Type::OID_VECTOR, Kind::Text);
    check(Type::INT2_VECTOR_ARRAY, array_of(Kind::Text));
}

#[test]
fn wide_integers_and_json_are_strings_where_the_format_says_so() {
    let none = HashMap::<Oid, TypeFacts>::new();
    let check = |format, built_in: Type, expect| assert_eq!(kind_of(Oid::new(built_in.oid()), -1, &none, format), expect, "{built_in}");
    let bigint = Style::Plain(Plain { bigint_as_string: true, json_as_text: false });
    let json = Style::Plain(Plain { bigint_as_string: false, json_as_text: true });
    check(bigint, Type::INT8, Kind::Text);
    check(bigint, Type::XID8_ARRAY, array_of(Kind::Text));
    check(bigint, Type::INT4, Kind::Integer);
    check(bigint, Type::JSON, Kind::Json);
    check(json, Type::JSONB, Kind::Text);
    check(json, Type::JSON_ARRAY, array_of(Kind::Text));
    check(json, Type::INT8, Kind::Integer);
}

#[test]
fn the_kind_of_another_type_follows_from_the_catalog() {
    let (mood, moods, price, prices, grid, grids, row, rows) = (16_400, 16_401, 16_402, 16_403, 16_404, 16_405, 16_406, 16_407);
    let facts = |base: u32, element: Option<u32>| TypeFacts {
        name: String::new(),
        base: Oid::new(base),
        typmod: -1,
        element: element.map(Oid::new),
        delimiter: b',',
    };
    let types: HashMap<Oid, TypeFacts> = [
        (mood, facts(mood, None)),
        (moods, facts(moods, Some(mood))),
        (price, facts(Type::INT8.oid(), None)),
        (prices, facts(prices, Some(price))),
        (grid, facts(Type::INT4_ARRAY.oid(), None)),
        (grids, facts(grids, Some(grid))),
        (row, facts(moods, None)),
        (rows, facts(rows, Some(row))),
    ]
    .map(|(oid, facts)| (Oid::new(oid), facts))
    .into();
    let check = |oid: u32, expect: Kind| assert_eq!(kind_of(Oid::new(oid), -1, &types, PLAIN), expect, "{oid}");
    check(mood, Kind::Text);
    check(moods, array_of(Kind::Text));
    check(price, Kind::Integer);
    check(prices, array_of(Kind::Integer));
    check(grid, array_of(Kind::Integer));
    check(grids, array_of(array_of(Kind::Integer)));
    check(rows, array_of(array_of(Kind::Text)));
    check(16_499, Kind::Text);
}

#[test]
fn types_that_point_at_each_other_are_text() {
    let facts = |base, element: Option<u32>| TypeFacts {
        name: String::new(),
        base: Oid::new(base),
        typmod: -1,
        element: element.map(Oid::new),
        delimiter: b',',
    };
    let types: HashMap<Oid, TypeFacts> = [(Oid::new(16_400), facts(16_401, None)), (Oid::new(16_401), facts(16_400, None))].into();
    assert_eq!(kind_of(Oid::new(16_400), -1, &types, PLAIN), Kind::Text);
}

fn kinds() -> impl Strategy<Value = Kind> {
    let scalars = [Kind::Integer, Kind::Float, Kind::Boolean, Kind::Json, Kind::Timestamp, Kind::TimestampTz, Kind::Bytes, Kind::Text];
    let array = |element: Kind| (Just(element), prop_oneof![Just(b','), Just(b';')]);
    let array = move |element| array(element).prop_map(|(element, delimiter)| Kind::Array { element: Box::new(element), delimiter });
    prop::sample::select(scalars.to_vec())
        .prop_flat_map(move |kind| prop_oneof![Just(kind.clone()), array(kind.clone()), array(array_of(kind))])
}

/// Text that gets far into each parser before it goes wrong, and plain noise.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let near_misses =
        r#"(\[[0-9:]{1,4}\]=)?[{}\[\]",;:\\NULtf0-9eE+. x\n\r\t-]{0,24}|\\\\x[0-9a-g]{0,9}|[0-9]{4}-01-02 03:04:05(\.[0-9]{0,3})?(\+00)?"#;
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        proptest::string::bytes_regex(near_misses).unwrap(),
        any::<String>().prop_map(String::into_bytes)
    ]
}

/// What an array holds: the model that the server's text is made from.
#[derive(Clone, Debug)]
enum Node {
    Null,
    Element(String),
    Dimension(Vec<Node>),
}

impl Node {
    /// As `array_out` prints it.
    fn print(&self, delimiter: char, out: &mut String) {
        match self {
            Self::Null => out.push_str("NULL"),
            Self::Element(text) => {
                let special = |character: char| character.is_whitespace() || "{}\"\\".contains(character) || character == delimiter;
                if text.is_empty() || text.eq_ignore_ascii_case("null") || text.chars().any(special) {
                    out.push('"');
                    for character in text.chars() {
                        if matches!(character, '"' | '\\') {
                            out.push('\\');
                        }
                        out.push(character);
                    }
                    out.push('"');
                } else {
                    out.push_str(text);
                }
            }
            Self::Dimension(nodes) => {
                out.push('{');
                for (place, node) in nodes.iter().enumerate() {
                    if place > 0 {
                        out.push(delimiter);
                    }
                    node.print(delimiter, out);
                }
                out.push('}');
            }
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Element(text) => json!(text),
            Self::Dimension(nodes) => nodes.iter().map(Self::json).collect(),
        }
    }
}

fn arrays() -> impl Strategy<Value = Node> {
    let element = prop_oneof![1 => Just(Node::Null), 4 => "\\PC{0,6}|[{}\",;\\\\ a\n]{0,5}|(?i:null)".prop_map(Node::Element)];
    let dimension = |node: BoxedStrategy<Node>| prop::collection::vec(node, 1..4).prop_map(Node::Dimension);
    let flat = dimension(element.boxed());
    let two = dimension(flat.clone().boxed());
    let three = dimension(two.clone().boxed());
    prop_oneof![Just(Node::Dimension(Vec::new())), flat, two, three]
}

proptest! {
    #[test]
    fn any_bytes_of_any_kind_give_valid_json_on_one_line(kind in kinds(), text in texts()) {
        let json = written(&kind, &text);
        prop_assert!(serde_json::from_str::<IgnoredAny>(&json).is_ok(), "{}", json);
        prop_assert!(!json.contains(['\n', '\r']), "{}", json);
    }

    #[test]
    fn strings_come_back_as_they_were(text in any::<String>()) {
        prop_assert_eq!(serde_json::from_str::<String>(&written(&Kind::Text, text.as_bytes())).unwrap(), text);
    }

    #[test]
    fn strings_come_back_wherever_a_byte_to_escape_stands(text in "[ a\"\\\\\n\u{1f}\u{20}\u{7f}é]{0,40}") {
        let json = written(&Kind::Text, text.as_bytes());
        prop_assert_eq!(&json, &serde_json::to_string(&text).unwrap());
    }

    #[test]
    fn bytes_come_back_as_they_were(bytes in prop::collection::vec(any::<u8>(), 0..1_000)) {
        use base64::Engine as _;
        let hex = bytes.iter().fold("\\x".to_owned(), |hex, byte| hex + &format!("{byte:02x}"));
        let base64: String = serde_json::from_str(&written(&Kind::Bytes, hex.as_bytes())).unwrap();
        prop_assert_eq!(base64::engine::general_purpose::STANDARD.decode(base64).unwrap(), bytes);
    }

    #[test]
    fn floats_come_back_as_they_were(float in any::<f64>()) {
        let text = format!("{float:?}");
        let json = written(&Kind::Float, text.as_bytes());
        prop_assert_eq!(serde_json::from_str::<Json>(&json).unwrap().is_number(), float.is_finite());
        if float.is_finite() {
            prop_assert_eq!(json.parse::<f64>().unwrap().to_bits(), float.to_bits());
        }
    }

    #[test]
    fn arrays_hold_what_the_model_holds(array in arrays(), delimiter in prop_oneof![Just(','), Just(';')]) {
        let mut text = String::new();
        array.print(delimiter, &mut text);
        let kind = Kind::Array { element: Box::new(Kind::Text), delimiter: u8::try_from(delimiter).unwrap() };
        let json: Json = serde_json::from_str(&written(&kind, text.as_bytes())).unwrap();
        prop_assert_eq!(json, array.json(), "{}", text);
    }
}
