//! Nets as the planner's tests write them down: every operation a step, nothing run in place, all values in f32.

use crate::plan::offsets::Buffer;

/// A net that is written down operation by operation; every value is alive from its step to its last reader's.
#[derive(Default)]
pub(super) struct Net {
    pub(super) buffers: Vec<Buffer>,
    step: usize,
}

/// A value of the net: which buffer, and its channels, height and width.
#[derive(Clone, Copy)]
pub(super) struct Value {
    index: usize,
    pub(super) c: u64,
    pub(super) h: u64,
    pub(super) w: u64,
}

impl Net {
    pub(super) fn input(&mut self, c: u64, h: u64, w: u64) -> Value {
        self.buffers.push(Buffer { bytes: 4 * c * h * w, first_step: 0, last_step: 0 });
        Value { index: self.buffers.len() - 1, c, h, w }
    }

    /// One step that reads `inputs` and makes a value.
    pub(super) fn op(&mut self, inputs: &[Value], c: u64, h: u64, w: u64) -> Value {
        let step = self.step;
        self.step += 1;
        for input in inputs {
            self.buffers[input.index].last_step = step;
        }
        self.buffers.push(Buffer { bytes: 4 * c * h * w, first_step: step, last_step: step });
        Value { index: self.buffers.len() - 1, c, h, w }
    }

    /// Bytes that only the newest step needs.
    pub(super) fn scratch(&mut self, bytes: u64) {
        let step = self.step.saturating_sub(1);
        self.buffers.push(Buffer { bytes, first_step: step, last_step: step });
    }

    /// Values that stay alive to the end.
    pub(super) fn outputs(mut self, values: &[Value]) -> Vec<Buffer> {
        for value in values {
            self.buffers[value.index].last_step = self.step.saturating_sub(1);
        }
        self.buffers
    }

    /// A convolution of `kernel`×`kernel`; wider ones than 1×1 take scratch for the patches of 64 output rows.
    pub(super) fn conv(&mut self, x: Value, c: u64, kernel: u64, stride: u64) -> Value {
        let y = self.op(&[x], c, x.h.div_ceil(stride), x.w.div_ceil(stride));
        if kernel > 1 {
            self.scratch(4 * x.c * kernel * kernel * 64);
        }
        y
    }

    /// An operation that keeps the shape: an activation, a normalisation.
    pub(super) fn same(&mut self, x: Value) -> Value {
        self.op(&[x], x.c, x.h, x.w)
    }

    pub(super) fn add(&mut self, a: Value, b: Value) -> Value {
        self.op(&[a, b], a.c, a.h, a.w)
    }

    pub(super) fn concat(&mut self, values: &[Value]) -> Value {
        self.op(values, values.iter().map(|v| v.c).sum(), values[0].h, values[0].w)
    }

    pub(super) fn convs(&mut self, x: Value, layers: &[(u64, u64, u64)]) -> Value {
        layers.iter().fold(x, |x, &(c, kernel, stride)| self.conv(x, c, kernel, stride))
    }

    /// Convolution, then x·sigmoid(x) as exporters write it: two more steps, the first reading what the second does.
    pub(super) fn silu(&mut self, x: Value, c: u64, kernel: u64, stride: u64) -> Value {
        let y = self.conv(x, c, kernel, stride);
        let gate = self.same(y);
        self.add(y, gate)
    }
}
