//! Bytes on the wire ↔ typed requests and answers of the Open Inference Protocol v2.
