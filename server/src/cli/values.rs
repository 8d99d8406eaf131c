//! The kinds of value that an argument can take, each with a sentence that says what is expected.

use plimsoll_engine::tensor::Shape;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A model as the command line names it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelRef {
    /// A name in the repository.
    Name(String),
    /// The path of an ONNX file: whatever ends in `.onnx` or has a `/`.
    File(PathBuf),
}

/// `NAME=FILE`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputFile {
    /// Name of the input.
    pub(crate) name: String,
    /// The file with its array.
    pub(crate) file: PathBuf,
}

/// `NAME=AxBxC`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InputShape {
    /// Name of the input.
    pub(crate) name: String,
    /// Its sizes, outermost first, each at least 1.
    pub(crate) shape: Vec<usize>,
}

impl InputShape {
    /// As the engine knows it.
    pub(crate) fn named(&self) -> (String, Shape) {
        (self.name.clone(), self.shape.as_slice().into())
    }
}

impl fmt::Display for ModelRef {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::File(file) => write!(out, "{}", file.display()),
        }
    }
}

impl FromStr for ModelRef {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(if text.ends_with(".onnx") || text.contains('/') {
            Self::File(PathBuf::from(text))
        } else {
            Self::Name(text.to_owned())
        })
    }
}

impl FromStr for InputFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, file)) if !name.is_empty() && !file.is_empty() => {
                Ok(Self { name: name.to_owned(), file: PathBuf::from(file) })
            }
            _ => Err(format!("expected NAME=FILE.npy such as image=seven.npy, got `{text}`")),
        }
    }
}

impl FromStr for InputShape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |why: &str| format!("expected NAME=AxBxC such as images=1x3x224x224, got `{text}`: {why}");
        // A shape has no `=`, a name may have one.
        let Some((name, sizes)) = text.rsplit_once('=') else { return Err(wrong("no `=`")) };
        if name.is_empty() {
            return Err(wrong("no name before `=`"));
        }
        let size = |size: &str| match size.parse() {
            Ok(size) if size > 0 => Ok(size),
            _ => Err(wrong(&format!("`{size}` is no whole number from 1"))),
        };
        Ok(Self { name: name.to_owned(), shape: sizes.split('x').map(size).collect::<Result<_, _>>()? })
    }
}

/// An address with a port.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("expected an address with a port such as 127.0.0.1:8000, got `{text}`"))
}

/// A GPU's architecture, as the number of `sm_NN`.
pub(super) fn architecture(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("sm_").and_then(|number| number.parse().ok());
    number
        .filter(|number| (80..1000).contains(number))
        .ok_or_else(|| format!("expected sm_80 or later, got `{text}`"))
}

/// A whole number from 1 to 65536.
pub(super) fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=65536) => Ok(count),
        _ => Err(format!("expected a whole number from 1 to 65536, got `{text}`")),
    }
}

/// A number of seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=86400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("expected a number of seconds from 0.01 to 86400, got `{text}`")),
    }
}
