//! A trace: which requests come when, from a file or drawn.

use crate::command::Usage;
use crate::schedule::COLUMNS;
use anyhow::Context;
use std::path::Path;
use std::time::Duration;

/// The latest time of a trace: a year.
const LATEST_MS: f64 = 366.0 * 24.0 * 3600.0 * 1e3;

/// A request of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Since the start.
    pub(super) at: Duration,
    /// The model's name.
    pub(super) model: String,
    /// Rows; `None` where the trace does not say.
    pub(super) rows: Option<usize>,
    /// How long it may take; `None` where the trace does not say.
    pub(super) timeout: Option<Duration>,
}

/// What is wrong with a trace, and where.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
struct Misread {
    /// Counted from 1.
    line: usize,
    /// In characters, counted from 1.
    column: usize,
    message: String,
}

/// The requests of a file, in the order of their times.
///
/// # Errors
/// The file cannot be read, or is no trace: line, column, what was expected and what came.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Line>> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {name} (--trace)"))?;
    Ok(parse(&text).map_err(|misread| Usage(format!("{name}:{misread}")))?)
}

/// A field of a line.
struct Field<'a> {
    line: usize,
    column: usize,
    text: &'a str,
}

impl Field<'_> {
    fn wrong(&self, expected: &str) -> Misread {
        let message = format!("expected {expected}, got `{}`", self.text);
        Misread { line: self.line, column: self.column, message }
    }

    fn milliseconds(&self) -> Result<Duration, Misread> {
        let ms = self.text.parse().ok().filter(|ms| (0.0..=LATEST_MS).contains(ms));
        let ms = ms.ok_or_else(|| self.wrong("a number of milliseconds from 0, of a year at most"))?;
        Ok(Duration::from_secs_f64(ms / 1e3))
    }

    fn rows(&self) -> Result<usize, Misread> {
        let rows = self.text.parse().ok().filter(|rows| (1..=65536).contains(rows));
        rows.ok_or_else(|| self.wrong("a whole number of rows from 1 to 65536"))
    }
}

fn fields(line: usize, text: &str) -> Vec<Field<'_>> {
    let mut column = 1;
    text.split(',')
        .map(|text| {
            let field = Field { line, column, text: text.trim() };
            column += text.chars().count() + 1;
            field
        })
        .collect()
}

fn parse(text: &str) -> Result<Vec<Line>, Misread> {
    let mut lines = text.lines().enumerate().map(|(at, text)| (at + 1, text));
    let header = fields(1, lines.next().map_or("", |(_, text)| text));
    for (at, field) in header.iter().enumerate() {
        let twice = header.iter().take(at).any(|before| before.text == field.text);
        if twice || !COLUMNS.contains(&field.text) {
            return Err(field.wrong(&format!("a header of the columns {}, each once", COLUMNS.join(", "))));
        }
    }
    let place = |name: &str| header.iter().position(|field| field.text == name);
    let needed = |name: &str| {
        let message = format!("expected a column {name}");
        place(name).ok_or(Misread { line: 1, column: 1, message })
    };
    let [at, model, rows, timeout] = COLUMNS;
    let (at, model, rows, timeout) = (needed(at)?, needed(model)?, place(rows), place(timeout));
    let mut requests: Vec<Line> = vec![];
    for (number, text) in lines.filter(|(_, text)| !text.trim().is_empty()) {
        let fields = fields(number, text);
        let given = |place: Option<usize>| fields.get(place?).filter(|field| !field.text.is_empty());
        let (true, Some(at_field), Some(model)) =
            (fields.len() == header.len(), fields.get(at), fields.get(model))
        else {
            let message = format!("expected {} fields as in the header, got {}", header.len(), fields.len());
            return Err(Misread { line: number, column: text.chars().count() + 1, message });
        };
        if model.text.is_empty() {
            return Err(model.wrong("the name of a model"));
        }
        let at = at_field.milliseconds()?;
        if let Some(before) = requests.last().filter(|before| before.at > at) {
            return Err(at_field.wrong(&format!(
                "a time that is not before the {:.3} above it",
                before.at.as_secs_f64() * 1e3
            )));
        }
        requests.push(Line {
            at,
            model: model.text.into(),
            rows: given(rows).map(Field::rows).transpose()?,
            timeout: given(timeout).map(Field::milliseconds).transpose()?,
        });
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn line(at: Duration, model: &str, rows: Option<usize>, timeout: Option<Duration>) -> Line {
        Line { at, model: model.into(), rows, timeout }
    }

    #[test]
    fn what_a_server_records_is_read() {
        let text = "at_ms,model,rows,timeout_ms\n0.000,a,1,29999.500\n0.000,b.c,8,\r\n\n12.5,a,,0\n";
        let expected = [
            line(Duration::ZERO, "a", Some(1), Some(MS * 59999 / 2)),
            line(Duration::ZERO, "b.c", Some(8), None),
            line(MS * 25 / 2, "a", None, Some(Duration::ZERO)),
        ];
        assert_eq!(parse(text).unwrap(), expected);
        assert_eq!(parse("model,at_ms\na,3\n").unwrap(), [line(3 * MS, "a", None, None)]);
        assert_eq!(parse("at_ms,model\n").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, told) in [
            ("", "1:1: expected a header of the columns at_ms, model, rows, timeout_ms, each once, got ``"),
            (
                "at_ms,name\n",
                "1:7: expected a header of the columns at_ms, model, rows, timeout_ms, each once, got `name`",
            ),
            ("at_ms,rows\n1,1", "1:1: expected a column model"),
            ("at_ms,model\n1", "2:2: expected 2 fields as in the header, got 1"),
            ("at_ms,model\n1,", "2:3: expected the name of a model, got ``"),
            (
                "at_ms,model\n-1,a",
                "2:1: expected a number of milliseconds from 0, of a year at most, got `-1`",
            ),
            ("at_ms,model,rows\n\n1,ü,x", "3:5: expected a whole number of rows from 1 to 65536, got `x`"),
            ("at_ms,model\n2,a\n1,a", "3:1: expected a time that is not before the 2.000 above it, got `1`"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), told, "{text:?}");
        }
    }
}
