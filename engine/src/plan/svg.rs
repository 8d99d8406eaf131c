//! A picture of a plan: steps across, offsets up, a rectangle per buffer, and the load line that none may cross.
//!
//! One SVG file that needs nothing else: no script, no font of its own, colours for light and dark.

mod axes;
mod picture;
#[cfg(test)]
mod tests;
mod text;

use picture::Picture;

/// What a buffer is for, which is told by its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Written by the caller.
    Input,
    /// Read by the caller.
    Output,
    /// Made by one step and read by others.
    Value,
    /// Needed within one step.
    Scratch,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Input, Kind::Value, Kind::Scratch, Kind::Output];

    /// The word in the legend, which is also the class in the style sheet.
    fn name(self) -> &'static str {
        match self {
            Kind::Input => "input",
            Kind::Output => "output",
            Kind::Value => "value",
            Kind::Scratch => "scratch",
        }
    }
}

/// A buffer as it is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawn<'a> {
    /// What a person calls it; may hold any characters.
    pub name: &'a str,
    /// Its size in bytes; a buffer of 0 is not drawn.
    pub bytes: u64,
    /// Its distance from the workspace's start in bytes.
    pub offset_bytes: u64,
    /// The first step at which it is alive, counted from 0.
    pub first_step: usize,
    /// The last step at which it is alive, inclusive.
    pub last_step: usize,
    /// What it is for.
    pub kind: Kind,
}

/// Draws a plan. `steps` are the steps' names, first to last; the workspace's size in bytes is the dashed load line.
pub(super) fn svg(title: &str, buffers: &[Drawn], steps: &[&str], workspace_bytes: u64) -> String {
    let picture = Picture::new(buffers, steps, workspace_bytes);
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = picture.write(&mut out, title);
    out
}
