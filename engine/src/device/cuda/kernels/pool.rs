//! Maximum, sum and average over windows of images.

use super::axes::{self, Axis, Divider, Loops};
use super::launch::{self, Float, Queue, Unsupported, blocks};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

const BLOCK: usize = 128;
/// The most spatial axes.
pub(super) const SPATIAL: usize = 3;

/// An image with up to three spatial axes; strides in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image<'a> {
    /// How many images.
    pub(crate) batch: usize,
    /// The sizes of the spatial axes.
    pub(crate) size: &'a [usize],
    /// Channels of a pixel.
    pub(crate) channels: usize,
    /// From image to image.
    pub(crate) batch_stride: usize,
    /// Along the spatial axes.
    pub(crate) strides: &'a [usize],
    /// From channel to channel.
    pub(crate) channel_stride: usize,
}

/// A window; one entry a spatial axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'a> {
    /// Its size.
    pub(crate) size: &'a [usize],
    /// From window to window.
    pub(crate) stride: &'a [usize],
    /// Between its elements.
    pub(crate) dilation: &'a [usize],
    /// Elements of border before the image.
    pub(crate) before: &'a [usize],
}

/// What is made of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    /// The largest element in the image; −∞ for a window without any.
    Max,
    /// The sum of the elements in the image.
    Sum,
    /// That over the window's size.
    Average,
    /// That over the number of elements in the image.
    AverageInside,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    out: u64,
    threads: u32,
    kind: u32,
    packs: Divider,
    size: [Divider; SPATIAL],
    in_size: [i32; SPATIAL],
    window: [i32; SPATIAL],
    stride: [i32; SPATIAL],
    before: [i32; SPATIAL],
    dilation: [Divider; SPATIAL],
    x_strides: [u32; SPATIAL + 2],
    out_strides: [u32; SPATIAL + 2],
}

/// A pooling, made for one shape.
pub(crate) struct Pool {
    float: Float,
    args: Args,
    pixels: usize,
    channels: usize,
    packs: bool,
}

impl Image<'_> {
    /// Strides of batch, three spatial axes and channels.
    pub(super) fn all_strides(&self) -> [u32; SPATIAL + 2] {
        let spatial = in_front(self.strides, 0);
        [
            self.batch_stride as u32,
            spatial[0] as u32,
            spatial[1] as u32,
            spatial[2] as u32,
            self.channel_stride as u32,
        ]
    }

    /// Refuses what does not fit in 31 bits.
    pub(super) fn check(&self) -> Result<(), Unsupported> {
        if self.size.len() > SPATIAL {
            return Err(Unsupported::Axes { have: self.size.len(), most: SPATIAL });
        }
        let mut loops: Loops<1> = self
            .size
            .iter()
            .zip(self.strides)
            .map(|(&len, &stride)| Axis { len, strides: [stride] })
            .collect();
        loops.push(Axis { len: self.batch, strides: [self.batch_stride] });
        loops.push(Axis { len: self.channels, strides: [self.channel_stride] });
        axes::check(&loops)
    }

    /// Whether `pack` channels of a pixel can be moved at once, if addresses allow it.
    pub(super) fn packs(&self, pack: usize) -> bool {
        self.channel_stride == 1
            && self.channels.is_multiple_of(pack)
            && self.strides.iter().all(|stride| stride.is_multiple_of(pack))
            && self.batch_stride.is_multiple_of(pack)
    }
}

/// Three axes, of which the missing ones come first.
pub(super) fn in_front(axes: &[usize], missing: usize) -> [i32; SPATIAL] {
    let absent = SPATIAL - axes.len();
    std::array::from_fn(|at| if at < absent { missing } else { axes[at - absent] } as i32)
}

impl Pool {
    /// From one image to another. What a window has beyond the source counts as the border.
    pub(crate) fn new(
        kind: PoolKind,
        float: Float,
        x: &Image<'_>,
        out: &Image<'_>,
        window: &Window<'_>,
    ) -> Result<Pool, Unsupported> {
        x.check()?;
        out.check()?;
        let size = in_front(out.size, 1);
        let args = Args {
            x: 0,
            out: 0,
            threads: 0,
            kind: kind as u32,
            packs: Divider::new(1),
            size: std::array::from_fn(|at| Divider::new(size[SPATIAL - 1 - at] as usize)),
            in_size: in_front(x.size, 1),
            window: in_front(window.size, 1),
            stride: in_front(window.stride, 1),
            dilation: in_front(window.dilation, 1).map(|dilation| Divider::new(dilation as usize)),
            before: in_front(window.before, 0),
            x_strides: x.all_strides(),
            out_strides: out.all_strides(),
        };
        let pixels = out.batch * out.size.iter().product::<usize>();
        let packs = x.packs(float.pack()) && out.packs(float.pack());
        Ok(Pool { float, args, pixels, channels: out.channels, packs })
    }

    /// Pools. Source and target must not overlap.
    ///
    /// # Safety
    /// Source and target lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let packed = self.packs && launch::aligned(x | out, 16);
        let (kernel, pack) = match (self.float, packed) {
            (Float::F32, false) => ("pool_f32_1", 1),
            (Float::F32, true) => ("pool_f32_4", 4),
            (Float::F16, false) => ("pool_f16_1", 1),
            (Float::F16, true) => ("pool_f16_8", 8),
        };
        let packs = self.channels / pack;
        let threads = self.pixels * packs;
        let args = Args { x, out, threads: threads as u32, packs: Divider::new(packs), ..self.args };
        // SAFETY: the caller's promise; `args` is the kernel's struct, and the kernel reads inside the image
        // only.
        unsafe { queue.launch(kernel, blocks(threads, BLOCK), (BLOCK as u32, 1), 0, &args) }
    }
}
