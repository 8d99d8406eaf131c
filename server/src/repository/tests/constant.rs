use crate::repository::*;
use std::path::Path;

fn read(value: &str) -> Result<Constant, String> {
    let text = format!("constants.x = {value}");
    match ModelSettings::read(&text, Path::new("model.toml")) {
        Ok(settings) => Ok(settings.constants["x"].clone()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_scalar_has_no_axes() {
    for (text, values) in [
        ("true", Values::Bools(vec![true])),
        ("-3", Values::Ints(vec![-3])),
        ("0.5", Values::Floats(vec![0.5])),
        ("\"a\"", Values::Strings(vec!["a".to_owned()])),
    ] {
        assert_eq!(read(text), Ok(Constant { shape: vec![], values }), "{text}");
    }
}

#[test]
fn nested_arrays_are_flattened_with_the_last_axis_fastest() {
    let expected = Constant { shape: vec![2, 3], values: Values::Ints(vec![1, 2, 3, 4, 5, 6]) };
    assert_eq!(read("[[1, 2, 3], [4, 5, 6]]"), Ok(expected));
}

#[test]
fn one_decimal_point_makes_every_number_a_float() {
    let expected = Constant { shape: vec![2, 2], values: Values::Floats(vec![1.0, 2.0, 3.5, 4.0]) };
    assert_eq!(read("[[1, 2], [3.5, 4]]"), Ok(expected));
}

#[test]
fn an_empty_array_has_one_axis_of_no_elements() {
    assert_eq!(read("[]"), Ok(Constant { shape: vec![0], values: Values::Floats(vec![]) }));
}

#[test]
fn what_is_no_array_is_refused_with_its_place() {
    for (text, expected) in [
        ("[[1, 2], [3]]", "expected elements of one shape, got [1] after [2]"),
        ("[1, [2]]", "expected elements of one shape, got [1] after []"),
        ("[1, true]", "expected elements of one kind, got a boolean after a number"),
        ("[[[[[[[[[1]]]]]]]]]", "expected an array of at most 8 axes, got 9"),
        ("{ a = 1 }", "expected a number, a boolean, a string or an array of them, got a table"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with("model.toml:1:1"), "{error}");
        assert!(error.ends_with(&format!("`x` in [constants]: {expected}")), "{error}");
    }
}
