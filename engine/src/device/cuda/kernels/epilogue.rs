//! What heavy kernels do with an element before it is stored. Anything else is a pointwise step of its own.

use cudarc::driver::sys::CUdeviceptr;

/// Activations that are part of the kernels. As `Act` in epilogue.cuh.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Act {
    /// x.
    #[default]
    None,
    /// max(0, x).
    Relu,
    /// min(high, max(low, x)).
    Clamp(f32, f32),
    /// x where x ≥ 0, else x · that.
    LeakyRelu(f32),
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// x · sigmoid(x).
    Silu,
    /// max(0, min(1, x · first + second)).
    HardSigmoid(f32, f32),
    /// x · max(0, min(1, x / 6 + 1 / 2)).
    HardSwish,
    /// The hyperbolic tangent.
    Tanh,
    /// x / 2 · (1 + erf(x / √2)).
    GeluErf,
    /// x / 2 · (1 + tanh(√(2 / π) · (x + 0.044715 · x³))).
    GeluTanh,
}

impl Act {
    /// Its number in the kernels, and its two parameters.
    pub(crate) fn encode(self) -> (i32, f32, f32) {
        match self {
            Act::None => (0, 0.0, 0.0),
            Act::Relu => (1, 0.0, 0.0),
            Act::Clamp(low, high) => (2, low, high),
            Act::LeakyRelu(slope) => (3, slope, 0.0),
            Act::Sigmoid => (4, 0.0, 0.0),
            Act::Silu => (5, 0.0, 0.0),
            Act::HardSigmoid(alpha, beta) => (6, alpha, beta),
            Act::HardSwish => (7, 0.0, 0.0),
            Act::Tanh => (8, 0.0, 0.0),
            Act::GeluErf => (9, 0.0, 0.0),
            Act::GeluTanh => (10, 0.0, 0.0),
        }
    }
}

/// Where the further operand of an epilogue comes in. As `Order` in epilogue.cuh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// There is none: act(x + bias).
    #[default]
    Alone,
    /// act(x + bias + operand).
    AddBefore,
    /// act(x + bias) + operand.
    AddAfter,
    /// act(x + bias) · operand.
    MulAfter,
}

/// What follows a product at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Epilogue {
    /// Whether a bias is added first, f32 whatever the storage, one number a column.
    pub(crate) bias: bool,
    /// The activation.
    pub(crate) act: Act,
    /// What happens with the operand.
    pub(crate) order: Order,
}

/// The memory of a product: addresses of first elements, 0 for what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pointers {
    /// The left side or the image.
    pub(crate) a: CUdeviceptr,
    /// The right side or the weights.
    pub(crate) b: CUdeviceptr,
    /// The output.
    pub(crate) c: CUdeviceptr,
    /// The bias, f32.
    pub(crate) bias: CUdeviceptr,
    /// The further operand, stored as the output is.
    pub(crate) operand: CUdeviceptr,
    /// As much as the candidate's `partial_bytes`; nothing in it outlives the launch.
    pub(crate) partials: CUdeviceptr,
    /// As many u32 as the candidate's `counters`, which are zero before each launch and left so.
    pub(crate) counters: CUdeviceptr,
}

impl Pointers {
    /// Whether each of them is 0 or a multiple of 16, those aside that kernels touch an element at a time.
    pub(crate) fn aligned(&self) -> bool {
        (self.c | self.bias | self.operand).is_multiple_of(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_the_numbers_that_the_kernels_know_them_by() {
        let source = include_str!("epilogue.cuh");
        let names = source.split_once("enum Act {").unwrap().1.split_once('}').unwrap().0;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        let number = |name: &str| names.iter().position(|own| *own == name).unwrap() as i32;
        for (act, name) in [
            (Act::None, "NONE"),
            (Act::Relu, "RELU"),
            (Act::Clamp(0.0, 1.0), "CLAMP"),
            (Act::LeakyRelu(0.1), "LEAKY_RELU"),
            (Act::Sigmoid, "SIGMOID"),
            (Act::Silu, "SILU"),
            (Act::HardSigmoid(0.2, 0.5), "HARD_SIGMOID"),
            (Act::HardSwish, "HARD_SWISH"),
            (Act::Tanh, "TANH"),
            (Act::GeluErf, "GELU_ERF"),
            (Act::GeluTanh, "GELU_TANH"),
        ] {
            assert_eq!(act.encode().0, number(name), "{name}");
        }
        assert_eq!(names.len(), 11);
    }
}
