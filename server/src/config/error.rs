//! Why a configuration is refused.

use std::io;
use std::path::{Path, PathBuf};

/// Why a configuration is refused; the text is complete, with the place and the remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file is not there or not readable.
    #[error("cannot read {}: {error}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A key or value of a file is wrong.
    #[error("{}:{line}:{column}: {message}", file.display())]
    Place {
        /// The file.
        file: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// Column in characters, counted from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// An environment variable is wrong.
    #[error("{name}: {message}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong with it.
        message: String,
    },
    /// Values that are right alone contradict each other.
    #[error("{0}")]
    Conflict(String),
}

impl ConfigError {
    pub(super) fn unreadable(file: &Path, error: io::Error) -> Self {
        Self::Unreadable { file: file.to_owned(), error }
    }

    pub(super) fn variable(name: &str, message: impl Into<String>) -> Self {
        Self::Variable { name: name.to_owned(), message: message.into() }
    }

    pub(super) fn conflict(message: String) -> Self {
        Self::Conflict(message)
    }
}
