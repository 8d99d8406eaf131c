//! Arguments, file and environment → one checked configuration.
