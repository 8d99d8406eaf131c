//! What surrounds the rectangles: the legend, both axes and the load line.

use super::Kind;
use super::picture::{BELOW, LEFT, PLOT_HEIGHT, Picture, TOP};
use super::text::{fitted, mib, width_px};
use crate::error::size;
use std::fmt::{Result, Write};

/// A step's name and number need this much width if they are not to touch the next one's.
const NAME_PX: f64 = 15.0;

impl Picture<'_> {
    pub(super) fn legend(&self, out: &mut String) -> Result {
        let mut x = 16.0;
        for kind in Kind::ALL {
            let name = kind.name();
            writeln!(out, r#"<rect class="{name}" x="{x:.0}" y="63" width="14" height="14"/>"#)?;
            writeln!(out, r#"<text class="note" x="{:.0}" y="75">{name}</text>"#, x + 20.0)?;
            x += 46.0 + width_px(name);
        }
        writeln!(out, r#"<path class="load" d="M{x:.0} 70h26"/>"#)?;
        writeln!(
            out,
            r#"<text class="note" x="{:.0}" y="75">load line: the workspace's size</text>"#,
            x + 32.0
        )?;
        x += 240.0;
        writeln!(out, r#"<rect class="peak" x="{x:.0}" y="63" width="14" height="14"/>"#)?;
        writeln!(out, r#"<text class="note" x="{:.0}" y="75">live peak</text>"#, x + 20.0)
    }

    pub(super) fn bytes_axis(&self, out: &mut String) -> Result {
        let right = LEFT + self.plot_width;
        let most = self.highest / MIB;
        let step = nice(most / 7.0);
        for tick in 0..=(most / step) as u32 {
            let value = f64::from(tick) * step;
            let y = TOP + PLOT_HEIGHT * (1.0 - value / most);
            writeln!(out, r#"<path class="grid" d="M{LEFT} {y:.2}H{right:.2}"/>"#)?;
            let label = mib(value, step);
            writeln!(
                out,
                r#"<text class="tick end" x="{:.0}" y="{:.2}">{label}</text>"#,
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        let middle = TOP + PLOT_HEIGHT / 2.0;
        writeln!(
            out,
            r#"<text class="note middle" transform="translate(18 {middle:.0}) rotate(-90)">offset in the workspace, MiB</text>"#
        )
    }

    /// The peak step, over the buffers such that these shine through, and a mark on the axis.
    pub(super) fn peak_band(&self, out: &mut String, peak: usize) -> Result {
        let (x, width) = (self.x(peak), (self.plot_width / self.columns as f64).max(2.0));
        let bottom = TOP + PLOT_HEIGHT;
        writeln!(
            out,
            r#"<rect class="peak" x="{x:.2}" y="{TOP}" width="{width:.2}" height="{PLOT_HEIGHT}"/>"#
        )?;
        writeln!(out, r#"<rect class="peakmark" x="{x:.2}" y="{bottom}" width="{width:.2}" height="4"/>"#)
    }

    pub(super) fn load_line(&self, out: &mut String) -> Result {
        let (y, right) = (self.y(self.workspace), LEFT + self.plot_width);
        writeln!(out, r#"<path class="load" d="M{LEFT} {y:.2}H{right:.2}"/>"#)?;
        writeln!(
            out,
            r#"<text class="loadtext end" x="{right:.2}" y="{:.2}">load line {}</text>"#,
            y - 6.0,
            size(self.workspace)
        )
    }

    pub(super) fn steps_axis(&self, out: &mut String) -> Result {
        let (bottom, width) = (TOP + PLOT_HEIGHT, self.plot_width / self.columns as f64);
        writeln!(out, r#"<path class="axis" d="M{LEFT} {TOP}V{bottom}H{:.2}"/>"#, LEFT + self.plot_width)?;
        let every = nice((NAME_PX / width).max(1.0)).ceil() as usize;
        for step in (0..self.columns).step_by(every.max(1)) {
            let (x, y) = (self.x(step) + width / 2.0, bottom + 15.0);
            writeln!(out, r#"<text class="tick middle" x="{x:.2}" y="{y:.2}">{step}</text>"#)?;
            if let Some(name) = fitted(self.step_name(step), 112.0) {
                let y = y + 9.0;
                writeln!(
                    out,
                    r#"<text class="tick end" transform="translate({:.2} {y:.2}) rotate(-50)">{name}</text>"#,
                    x + 4.0
                )?;
            }
        }
        let (middle, y) = (LEFT + self.plot_width / 2.0, bottom + BELOW - 12.0);
        writeln!(out, r#"<text class="note middle" x="{middle:.2}" y="{y:.2}">step</text>"#)
    }
}

const MIB: f64 = 1_048_576.0;

/// The least of 1, 2 and 5 times a power of ten that is not below `value`, which is above 0.
fn nice(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= value * 0.999_999);
    factor.unwrap_or(10.0) * power
}
