//! Host steps: the operands are copied into tensors, and the results back.

use super::super::args::{Args, Kernel};
use crate::device::host::Host;
use crate::error::Error;
use bytes::Bytes;

impl Kernel for Host {
    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let bring = |at: usize, bytes: usize| Ok(Bytes::copy_from_slice(args.bytes(at, bytes)));
        self.run(bring, |at, made| {
            args.bytes_mut(at, made.len()).copy_from_slice(made);
            Ok(())
        })
    }
}
