//! The plot: where steps and bytes are, and a rectangle for each buffer.

use super::Drawn;
use super::text::{escaped, fitted, width_px};
use crate::error::size;
use std::fmt::{Result, Write};

/// Left edge of the plot: room for the axis. All lengths here are in user units, which are pixels at natural size.
pub(super) const LEFT: f64 = 84.0;
const RIGHT: f64 = 28.0;
pub(super) const TOP: f64 = 96.0;
pub(super) const PLOT_HEIGHT: f64 = 460.0;
/// Room below the plot: step numbers, step names that slant, the axis's title.
pub(super) const BELOW: f64 = 132.0;

pub(super) struct Picture<'a> {
    buffers: &'a [Drawn<'a>],
    steps: &'a [&'a str],
    pub(super) workspace: u64,
    /// Number of steps drawn: at least 1, and enough for every buffer.
    pub(super) columns: usize,
    /// What the axis ends at, in bytes.
    pub(super) highest: f64,
    pub(super) plot_width: f64,
    /// The bytes alive at each step.
    live: Vec<u64>,
}

impl<'a> Picture<'a> {
    /// More steps than this are not drawn: a buffer that claims to end later is a mistake, not a reason to run out
    /// of memory.
    const MOST_COLUMNS: usize = 20_000;

    pub(super) fn new(buffers: &'a [Drawn<'a>], steps: &'a [&'a str], workspace: u64) -> Self {
        let last = buffers.iter().map(|buffer| buffer.last_step.max(buffer.first_step)).max();
        let needed = last.map_or(1, |last| last.saturating_add(1));
        let columns = needed.max(steps.len()).min(Self::MOST_COLUMNS);
        let top = buffers.iter().map(|buffer| buffer.offset_bytes.saturating_add(buffer.bytes)).max();
        // A twentieth of air above the load line, so that what crosses it would be seen.
        let highest = (workspace.max(top.unwrap_or(0)).max(1)) as f64 * 1.05;
        let mut live = vec![0u64; columns];
        for buffer in buffers {
            for alive in live.iter_mut().take(buffer.last_step.saturating_add(1)).skip(buffer.first_step) {
                *alive = alive.saturating_add(buffer.bytes);
            }
        }
        let plot_width = (columns as f64 * 22.0).clamp(760.0, 1600.0);
        Picture { buffers, steps, workspace, columns, highest, plot_width, live }
    }

    /// Where a step's column begins.
    pub(super) fn x(&self, step: usize) -> f64 {
        LEFT + self.plot_width * step.min(self.columns) as f64 / self.columns as f64
    }

    pub(super) fn y(&self, bytes: u64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - bytes as f64 / self.highest)
    }

    /// The first step with the most bytes alive, and these.
    pub(super) fn peak(&self) -> (usize, u64) {
        let first = self.live.iter().enumerate().rev().max_by_key(|(_, alive)| **alive);
        first.map_or((0, 0), |(step, alive)| (step, *alive))
    }

    pub(super) fn step_name(&self, step: usize) -> &'a str {
        self.steps.get(step).copied().unwrap_or("")
    }

    pub(super) fn write(&self, out: &mut String, title: &str) -> Result {
        let (width, height) = (LEFT + self.plot_width + RIGHT, TOP + PLOT_HEIGHT + BELOW);
        let title = escaped(title);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img">"#
        )?;
        writeln!(out, "<title>{title}</title>\n<style>{}</style>", include_str!("style.css"))?;
        writeln!(out, r#"<rect class="page" width="{width:.0}" height="{height:.0}"/>"#)?;
        let (step, alive) = self.peak();
        writeln!(out, r#"<text class="head" x="16" y="30">{title}</text>"#)?;
        let name = fitted(self.step_name(step), 260.0).map(|name| format!(" ({name})")).unwrap_or_default();
        writeln!(
            out,
            r#"<text class="note" x="16" y="50">workspace {}, live peak {} at step {step}{name}, {} buffers, {} steps</text>"#,
            escaped(&size(self.workspace)),
            size(alive),
            self.buffers.len(),
            self.columns,
        )?;
        self.legend(out)?;
        self.columns(out)?;
        self.bytes_axis(out)?;
        self.buffers
            .iter()
            .filter(|buffer| buffer.bytes > 0)
            .try_for_each(|buffer| self.buffer(out, buffer))?;
        self.peak_band(out, step)?;
        self.load_line(out)?;
        self.steps_axis(out)?;
        writeln!(out, "</svg>")
    }

    /// For each step a column behind the buffers that says what is alive when pointed at.
    fn columns(&self, out: &mut String) -> Result {
        let width = self.plot_width / self.columns as f64;
        for (step, alive) in self.live.iter().enumerate() {
            let name = escaped(self.step_name(step));
            writeln!(
                out,
                r#"<rect class="column" x="{:.2}" y="{TOP}" width="{width:.2}" height="{PLOT_HEIGHT}"><title>step {step} {name}: {} live</title></rect>"#,
                self.x(step),
                size(*alive)
            )?;
        }
        Ok(())
    }

    fn buffer(&self, out: &mut String, buffer: &Drawn) -> Result {
        let last = buffer.last_step.max(buffer.first_step);
        let (left, right) = (self.x(buffer.first_step), self.x(last.saturating_add(1)));
        let (top, bottom) =
            (self.y(buffer.offset_bytes.saturating_add(buffer.bytes)), self.y(buffer.offset_bytes));
        let (width, height) = (right - left, bottom - top);
        let steps = if last == buffer.first_step {
            format!("step {last}")
        } else {
            format!("steps {} to {last}", buffer.first_step)
        };
        writeln!(
            out,
            r#"<g><title>{}: {} ({} bytes) at offset {}, {steps}, {}</title><rect class="{}" x="{left:.2}" y="{top:.2}" width="{width:.2}" height="{height:.2}"/>"#,
            escaped(buffer.name),
            size(buffer.bytes),
            buffer.bytes,
            buffer.offset_bytes,
            buffer.kind.name(),
            buffer.kind.name()
        )?;
        let (x, y) = ((left + right) / 2.0, (top + bottom) / 2.0);
        // Along the longer side if that is the height and the name would be cut otherwise.
        let upright = width >= 13.0 && height > width && width_px(buffer.name) > width - 6.0;
        let room = if upright { height } else { width } - 6.0;
        let across = if upright { width } else { height };
        if let Some(name) = fitted(buffer.name, room).filter(|_| across >= 12.0) {
            let turn = if upright { " rotate(-90)" } else { "" };
            let second = Some(size(buffer.bytes)).filter(|size| across >= 28.0 && width_px(size) <= room);
            let rise = if second.is_some() { -3.0 } else { 4.0 };
            write!(
                out,
                r#"<g transform="translate({x:.2} {y:.2}){turn}"><text class="label" y="{rise}">{name}</text>"#
            )?;
            if let Some(second) = second {
                write!(out, r#"<text class="label faint" y="11">{second}</text>"#)?;
            }
            writeln!(out, "</g>")?;
        }
        writeln!(out, "</g>")
    }
}
