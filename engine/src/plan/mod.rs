//! Graph → plan: which step runs when, on which bytes. Pure arithmetic, no pointers, no device.
//!
//! | step | from | to |
//! |---|---|---|
//! | `layout` | graph | steps on views of blocks: what is a view needs no step, what must lie otherwise is copied |
//! | `place` | steps and their scratch | lifetimes, offsets and the workspace's bytes |
//! | `report` | plan | figures, a table, a picture |

mod concat;
mod layout;
mod offsets;
mod place;
mod product;
mod report;
mod steps;
mod svg;
#[cfg(test)]
mod tests;
mod view;
mod work;

pub use layout::layout;
pub(crate) use layout::pixel_stride;
pub use place::Plan;
pub use product::Product;
pub use report::{BlockReport, HostStepReport, Report, StepReport};
pub use steps::{Block, BlockId, Constant, ConstantId, Layout, Operand, Place, Step};
pub use svg::Kind as BlockKind;
pub use view::{Order, View};
