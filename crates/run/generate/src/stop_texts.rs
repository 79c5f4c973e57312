//! Texts that end an answer, found over the edges of tokens.

/// Searches a text that arrives in pieces for the first of several stop texts, and holds back what may begin one.
#[derive(Clone, Debug)]
pub struct StopSearch {
    stops: Vec<String>,
    /// Text that was held back, because it begins a stop text.
    held: String,
}

/// Text that can be shown, and whether a stop text ended it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchedText {
    pub text: String,
    pub is_stopped: bool,
}

impl StopSearch {
    /// Creates a search for these texts; empty ones are ignored.
    pub fn new(mut stops: Vec<String>) -> Self {
        stops.retain(|stop| !stop.is_empty());
        Self { stops, held: String::new() }
    }

    /// Adds the next piece of the text. Returns the text before the stop that begins first, or what can no longer begin one.
    pub fn push(&mut self, piece: &str) -> SearchedText {
        self.held.push_str(piece);
        let begun = self.first_begun();
        match self.first_found() {
            // A stop that is complete waits if one that begins before it may still become complete.
            Some(start) if start <= begun => {
                self.held.truncate(start);
                SearchedText { text: std::mem::take(&mut self.held), is_stopped: true }
            }
            _ => {
                let rest = self.held.split_off(begun);
                SearchedText { text: std::mem::replace(&mut self.held, rest), is_stopped: false }
            }
        }
    }

    /// Returns the rest of the text after its last piece.
    pub fn finish(mut self) -> SearchedText {
        let found = self.first_found();
        self.held.truncate(found.unwrap_or(self.held.len()));
        SearchedText { text: self.held, is_stopped: found.is_some() }
    }

    fn first_found(&self) -> Option<usize> {
        self.stops.iter().filter_map(|stop| self.held.find(stop)).min()
    }

    /// Returns where the longest end of the held text starts that begins a stop; the end of the text if there is none.
    fn first_begun(&self) -> usize {
        let begins =
            |end: &str| self.stops.iter().any(|stop| stop.len() > end.len() && stop.starts_with(end));
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let mut starts = self.held.len().saturating_sub(longest)..self.held.len();
        starts.find(|start| self.held.get(*start..).is_some_and(begins)).unwrap_or(self.held.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn search(stops: &[&str], pieces: &[&str]) -> (Vec<String>, bool) {
        let mut search = StopSearch::new(stops.iter().map(|stop| (*stop).to_owned()).collect());
        let mut shown = Vec::new();
        for piece in pieces {
            let SearchedText { text, is_stopped } = search.push(piece);
            shown.push(text);
            if is_stopped {
                return (shown, true);
            }
        }
        let SearchedText { text, is_stopped } = search.finish();
        shown.push(text);
        (shown, is_stopped)
    }

    fn shown(texts: &[&str], is_stopped: bool) -> (Vec<String>, bool) {
        (texts.iter().map(|text| (*text).to_owned()).collect(), is_stopped)
    }

    #[test]
    fn a_stop_may_begin_and_end_inside_pieces() {
        assert_eq!(search(&["END"], &["a bE", "N", "D c"]), shown(&["a b", "", ""], true));
        assert_eq!(search(&["END"], &["E", "N", "x"]), shown(&["", "", "ENx", ""], false));
        assert_eq!(search(&["aab"], &["aaab"]), shown(&["a"], true));
        assert_eq!(search(&[""], &["ab"]), shown(&["ab", ""], false));
    }

    #[test]
    fn what_begins_a_stop_is_given_back_at_the_end() {
        assert_eq!(search(&["END"], &["xE", "N"]), shown(&["x", "", "EN"], false));
    }

    #[test]
    fn of_several_the_one_that_begins_first() {
        assert_eq!(search(&["bc", "abcd"], &["xabc", "d"]), shown(&["x", ""], true));
        assert_eq!(search(&["bc", "abcd"], &["xabc", "e"]), shown(&["x", "a"], true));
        assert_eq!(search(&["bc", "abcd"], &["xabc"]), shown(&["x", "a"], true));
    }

    proptest! {
        #[test]
        fn pieces_do_not_change_what_is_shown(
            pieces in prop::collection::vec("[abä]{0,4}", 0..9),
            stops in prop::collection::vec("[abä]{1,4}", 0..4),
        ) {
            let whole = pieces.concat();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let first = stops.iter().filter_map(|stop| whole.find(stop)).min();
            let (shown, is_stopped) = search(&stops, &pieces);
            prop_assert_eq!(shown.concat(), &whole[..first.unwrap_or(whole.len())]);
            prop_assert_eq!(is_stopped, first.is_some());
        }
    }
}
