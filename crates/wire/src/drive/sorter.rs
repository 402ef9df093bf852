//! Which units of a turn the client sees, and which frames must wait until that is known (docs/design/conversation.md#what-is-streamed-when).

use crate::format::{Codec, DecodedFrame, FramePart, UnitKind};

/// Whether the client sees one unit, as far as that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Visibility {
    /// The client sees it.
    Show,
    /// It is Knack's.
    Hide,
    /// A call whose name is not complete.
    Undecided,
    /// Text that waits for the turn's end, what follows it, or a unit that waits for the next one.
    Waits,
}

#[derive(Debug)]
struct SortedUnit {
    id: u32,
    kind: UnitKind,
    visibility: Visibility,
}

/// Sorts the parts of one turn.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one turn")]
pub(super) struct Sorter {
    own_tools: Vec<String>,
    client_tools: Vec<String>,
    /// Text waits for the turn's end.
    structured: bool,
    /// The order of units is part of the answer, which it is not in Chat: what follows a text that waits, waits too.
    ordered: bool,
    first_round: bool,
    units: Vec<SortedUnit>,
    /// Frames with the parts that wait.
    held: Vec<(DecodedFrame, Vec<bool>)>,
    held_bytes: usize,
    /// The turn's stop, if it has come: may calls run?
    pub(super) stop: Option<bool>,
    /// The end marker has come.
    pub(super) ended: bool,
    /// Something else has come than an end marker.
    pub(super) begun: bool,
}

impl Sorter {
    pub(super) fn new(own_tools: Vec<String>, client_tools: Vec<String>, structured: bool, ordered: bool) -> Self {
        Self {
            own_tools,
            client_tools,
            structured,
            ordered,
            first_round: true,
            ..Self::default()
        }
    }

    /// The next turn begins.
    pub(super) fn begin_round(&mut self) {
        let own_tools = std::mem::take(&mut self.own_tools);
        let client_tools = std::mem::take(&mut self.client_tools);
        *self = Self {
            own_tools,
            client_tools,
            structured: self.structured,
            ordered: self.ordered,
            ..Self::default()
        };
    }

    /// Bytes of frames that wait.
    pub(super) const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Sorts one frame and writes what may go out.
    pub(super) fn take(&mut self, frame: DecodedFrame, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let mut shown = vec![false; frame.parts.len()];
        let mut waits = vec![false; frame.parts.len()];
        self.begun |= frame.parts != [FramePart::End];
        for (at, part) in frame.parts.iter().enumerate() {
            match *part {
                FramePart::Start => shown[at] = self.first_round,
                FramePart::Other | FramePart::Error => shown[at] = true,
                FramePart::Usage => {}
                FramePart::Stop { runnable } => self.stop = Some(runnable),
                FramePart::End => self.ended = true,
                FramePart::Unit { id, kind } => {
                    self.open(id, kind, codec, out);
                    self.mark(id, at, &mut shown, &mut waits);
                }
                FramePart::UnitBytes { id } | FramePart::UnitEnd { id } => {
                    self.decide_again(id, codec, out);
                    self.mark(id, at, &mut shown, &mut waits);
                }
            }
        }
        // In a body a unit that waits for the next one is in the same frame.
        for at in 0..frame.parts.len() {
            if let (true, Some(id)) = (waits[at], frame.parts[at].unit()) {
                waits[at] = false;
                self.mark(id, at, &mut shown, &mut waits);
            }
        }
        if shown.contains(&true) {
            codec.show(&frame, &shown, out);
        }
        if waits.contains(&true) {
            self.held_bytes += frame.raw.len();
            self.held.push((frame, waits));
        }
    }

    fn mark(&mut self, id: u32, at: usize, shown: &mut [bool], waits: &mut [bool]) {
        match self.unit(id).map(|unit| unit.visibility) {
            Some(Visibility::Show) | None => shown[at] = true,
            Some(Visibility::Hide) => {}
            Some(Visibility::Undecided | Visibility::Waits) => waits[at] = true,
        }
    }

    fn unit(&self, id: u32) -> Option<&SortedUnit> {
        self.units.iter().rev().find(|unit| unit.id == id)
    }

    fn open(&mut self, id: u32, kind: UnitKind, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let visibility = match kind {
            UnitKind::Text if self.structured => Visibility::Waits,
            UnitKind::Text | UnitKind::Live => Visibility::Show,
            UnitKind::Paired => Visibility::Waits,
            UnitKind::Call => self.decide(id, codec),
        };
        let text_waits = |unit: &SortedUnit| unit.kind == UnitKind::Text && unit.visibility == Visibility::Waits;
        let visibility = match visibility {
            Visibility::Show if self.ordered && self.units.iter().any(text_waits) => Visibility::Waits,
            visibility => visibility,
        };
        if kind != UnitKind::Paired {
            self.settle_pairs(self.units.len(), visibility, codec, out);
        }
        self.units.push(SortedUnit { id, kind, visibility });
    }

    /// Knack's or the client's, decided as soon as the name is complete: one that is Knack's may be the beginning of another.
    fn decide(&self, id: u32, codec: &dyn Codec) -> Visibility {
        let Some(call) = codec.call(id) else {
            return Visibility::Show;
        };
        let is_own = self.own_tools.iter().any(|name| name == call.name);
        let goes_on = |name: &String| name.len() > call.name.len() && name.starts_with(call.name);
        let is_open = self.own_tools.iter().any(goes_on) || (is_own && self.client_tools.iter().any(goes_on));
        match (is_own, is_open && !call.named) {
            (_, true) => Visibility::Undecided,
            (true, false) => Visibility::Hide,
            (false, false) => Visibility::Show,
        }
    }

    fn decide_again(&mut self, id: u32, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let Some(at) = self
            .units
            .iter()
            .rposition(|unit| unit.id == id && unit.visibility == Visibility::Undecided)
        else {
            return;
        };
        let visibility = self.decide(id, codec);
        if visibility == Visibility::Undecided {
            return;
        }
        self.units[at].visibility = visibility;
        self.settle_pairs(at, visibility, codec, out);
        self.settle(id, visibility, codec, out);
    }

    /// Units that waited for the one at `next` share its fate.
    fn settle_pairs(&mut self, next: usize, visibility: Visibility, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        if !matches!(visibility, Visibility::Show | Visibility::Hide) {
            return;
        }
        let before = self.units[..next].iter().rev();
        let pairs = before.take_while(|unit| unit.kind == UnitKind::Paired).count();
        for at in next - pairs..next {
            if self.units[at].visibility == Visibility::Waits {
                self.units[at].visibility = visibility;
                self.settle(self.units[at].id, visibility, codec, out);
            }
        }
    }

    /// Sends or drops what waited of one unit.
    fn settle(&mut self, id: u32, visibility: Visibility, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let mut shown = Vec::new();
        for (frame, waits) in &mut self.held {
            let of_unit = |part: &FramePart| matches!(part, FramePart::Unit { id: own, .. } | FramePart::UnitBytes { id: own } | FramePart::UnitEnd { id: own } if *own == id);
            let released: Vec<bool> = frame
                .parts
                .iter()
                .zip(waits.iter())
                .map(|(part, waits)| *waits && of_unit(part))
                .collect();
            if !released.contains(&true) {
                continue;
            }
            for (waits, released) in waits.iter_mut().zip(&released) {
                *waits &= !released;
            }
            if visibility == Visibility::Show {
                shown.push((frame.clone(), released));
            }
        }
        if self.unit(id).is_some_and(|unit| unit.kind == UnitKind::Text) {
            codec.show_text(&shown, out);
        } else {
            for (frame, released) in &shown {
                codec.show(frame, released, out);
            }
        }
        self.held.retain(|(_, waits)| waits.contains(&true));
        self.held_bytes = self.held.iter().map(|(frame, _)| frame.raw.len()).sum();
    }

    /// The turn has stopped: every name is complete, and nothing more opens.
    pub(super) fn close(&mut self, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let ids: Vec<u32> = self
            .units
            .iter()
            .filter(|unit| unit.visibility == Visibility::Undecided)
            .map(|unit| unit.id)
            .collect();
        for id in ids {
            self.decide_again(id, codec, out);
        }
    }

    /// Sends what waited for the turn's end, in order. `show`: the turn has no calls of Knack that run; else text is dropped, with
    /// units that nothing else follows.
    pub(super) fn settle_rest(&mut self, show: bool, codec: &mut dyn Codec, out: &mut Vec<u8>) {
        let of_text = if show { Visibility::Show } else { Visibility::Hide };
        let (mut next, mut settled) = (of_text, Vec::new());
        for unit in self.units.iter_mut().rev() {
            if unit.visibility == Visibility::Waits {
                unit.visibility = match unit.kind {
                    UnitKind::Text => of_text,
                    UnitKind::Paired => next,
                    UnitKind::Call | UnitKind::Live => Visibility::Show,
                };
                settled.push((unit.id, unit.visibility));
            }
            if unit.kind != UnitKind::Paired {
                next = unit.visibility;
            }
        }
        for (id, visibility) in settled.into_iter().rev() {
            self.settle(id, visibility, codec, out);
        }
    }

    /// Knack's calls, in order.
    pub(super) fn own_calls(&self) -> Vec<u32> {
        self.calls(Visibility::Hide)
    }

    /// Calls of the client, in order.
    pub(super) fn client_calls(&self) -> Vec<u32> {
        self.calls(Visibility::Show)
    }

    fn calls(&self, visibility: Visibility) -> Vec<u32> {
        self.units
            .iter()
            .filter(|unit| unit.kind == UnitKind::Call && unit.visibility == visibility)
            .map(|unit| unit.id)
            .collect()
    }
}
