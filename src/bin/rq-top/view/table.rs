//! A table that leaves out columns for which there is no room, the less important first.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::{Pick, SELECTED};
use crate::text;

/// Least width of the column that takes what is left.
const FILL_MIN: u16 = 16;

type Shown<'a, Row> = Box<dyn Fn(&Row) -> String + 'a>;

pub struct Column<'a, Row> {
    title: &'static str,
    /// 0: all that is left.
    width: u16,
    is_right: bool,
    /// 0: the last to be left out.
    rank: u8,
    shown: Shown<'a, Row>,
    style: Box<dyn Fn(&Row) -> Style + 'a>,
}

impl<'a, Row> Column<'a, Row> {
    fn new(title: &'static str, width: u16, is_right: bool, rank: u8, shown: Shown<'a, Row>) -> Self {
        Self { title, width, is_right, rank, shown, style: Box::new(|_| Style::new()) }
    }

    /// The first column, which takes all that is left.
    pub fn fill(title: &'static str, shown: impl Fn(&Row) -> String + 'a) -> Self {
        Self::new(title, 0, false, 0, Box::new(shown))
    }

    pub fn left(title: &'static str, width: u16, rank: u8, shown: impl Fn(&Row) -> String + 'a) -> Self {
        Self::new(title, width, false, rank, Box::new(shown))
    }

    pub fn right(title: &'static str, width: u16, rank: u8, shown: impl Fn(&Row) -> String + 'a) -> Self {
        Self::new(title, width, true, rank, Box::new(shown))
    }

    pub fn count(title: &'static str, rank: u8, count: impl Fn(&Row) -> Option<u64> + 'a) -> Self {
        let width = u16::try_from(title.len()).unwrap_or(u16::MAX).max(6);
        Self::right(title, width, rank, move |row| count(row).map(text::short).unwrap_or_default())
    }

    pub fn style(mut self, style: impl Fn(&Row) -> Style + 'a) -> Self {
        self.style = Box::new(style);
        self
    }
}

/// Draws the rows from the first that is shown on.
pub fn draw_table<Row>(frame: &mut Frame, area: Rect, columns: &[Column<Row>], rows: &[Row], pick: Pick) {
    let places = places(area, columns);
    let line = |row: u16| Rect { y: area.y.saturating_add(row), height: 1, ..area };
    for (column, place) in columns.iter().zip(&places) {
        if area.height > 0 {
            draw_cell(
                frame,
                line(0),
                *place,
                column.title.into(),
                column.is_right,
                Style::new().add_modifier(Modifier::BOLD),
            );
        }
    }
    for (number, row) in (1..area.height).zip(rows.iter().skip(pick.first)) {
        let is_selected = pick.first.saturating_add(usize::from(number)) == pick.row.saturating_add(1);
        for (column, place) in columns.iter().zip(&places) {
            draw_cell(frame, line(number), *place, (column.shown)(row), column.is_right, (column.style)(row));
        }
        if is_selected {
            frame.buffer_mut().set_style(line(number), SELECTED);
        }
    }
}

fn draw_cell(
    frame: &mut Frame,
    line: Rect,
    place: Option<(u16, u16)>,
    text: String,
    is_right: bool,
    style: Style,
) {
    let Some((x, width)) = place else { return };
    let area = Rect { x: line.x.saturating_add(x), width, ..line }.intersection(line);
    let line = Line::from(text).style(style);
    frame.render_widget(if is_right { line.right_aligned() } else { line }, area);
}

/// Where each column is and how wide, if there is room for it.
fn places<Row>(area: Rect, columns: &[Column<Row>]) -> Vec<Option<(u16, u16)>> {
    let mut by_rank: Vec<(u8, usize)> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.width > 0)
        .map(|(at, column)| (column.rank, at))
        .collect();
    by_rank.sort_unstable();
    let mut left = area.width.saturating_sub(FILL_MIN);
    let mut widths: Vec<Option<u16>> = vec![None; columns.len()];
    for (_, at) in by_rank {
        let (Some(column), Some(width)) = (columns.get(at), widths.get_mut(at)) else { continue };
        let needed = column.width.saturating_add(1);
        if needed > left {
            break;
        }
        left = left.saturating_sub(needed);
        *width = Some(column.width);
    }
    let fill = left.saturating_add(FILL_MIN.min(area.width));
    let mut x: u16 = 0;
    columns
        .iter()
        .zip(widths)
        .map(|(column, width)| {
            let width = if column.width == 0 { fill } else { width? };
            let place = (x, width);
            x = x.saturating_add(width).saturating_add(1);
            Some(place)
        })
        .collect()
}
