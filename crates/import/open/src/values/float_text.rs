//! Floating-point numbers as NumPy prints them in arrays.
//!
//! Facts: `FloatingFormat` in `numpy/_core/arrayprint.py` and `dragon4.c` of NumPy 2.3: the shortest digits that identify
//! the number among those of its dtype, at most eight after the point. Digits beyond the shortest ones are exact.

/// Digits after the point at which NumPy cuts numbers off.
const PRECISION: usize = 8;

/// Size of a floating-point number, on which the shortest digits depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FloatWidth {
    Half,
    Single,
    Double,
}

impl FloatWidth {
    /// Returns the number from which on NumPy uses exponents: ten to the number of digits that the dtype can hold.
    fn exponent_cutoff(self) -> f64 {
        match self {
            Self::Half => 1e3,
            Self::Single => 1e6,
            Self::Double => 1e8,
        }
    }

    /// Returns the shortest digits of a finite number in scientific notation, such as `1.5e-3`.
    fn shortest(self, number: f64) -> String {
        match self {
            Self::Double => rounded_to_even(format!("{number:e}"), number, |text| text.parse() == Ok(number)),
            #[expect(clippy::cast_possible_truncation, reason = "the number was a float32")]
            Self::Single => {
                let single = number as f32;
                rounded_to_even(format!("{single:e}"), number, |text| text.parse() == Ok(single))
            }
            Self::Half => {
                let mut texts = (0..5).map(|places| format!("{number:.places$e}"));
                let found =
                    texts.find(|text| text.parse().is_ok_and(|parsed| identifies_half(parsed, number)));
                trim_zeros(&found.unwrap_or_else(|| format!("{number:e}")))
            }
        }
    }
}

/// Returns the other text of as many digits, if it is as near to the number and its last digit is even.
fn rounded_to_even(shortest: String, number: f64, identifies: impl Fn(&str) -> bool) -> String {
    let digits = shortest.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
    let rounded = format!("{number:.*e}", digits.saturating_sub(1));
    if identifies(&rounded) { rounded } else { shortest }
}

/// Drops zeros after the point of a number in scientific notation.
fn trim_zeros(text: &str) -> String {
    let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let digits =
        if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}e{exponent}")
}

/// Returns true if `parsed` rounds to the float16 `number`.
fn identifies_half(parsed: f64, number: f64) -> bool {
    let (parsed, number) = (parsed.abs(), number.abs());
    if number == 0.0 {
        return parsed == 0.0;
    }
    let exponent = exponent_of(number).max(-14);
    let unit = 2_f64.powi(exponent.saturating_sub(10));
    let is_even = ((number / unit) % 2.0) == 0.0;
    // The number below a power of two is half as far away.
    let is_power = number.to_bits().trailing_zeros() >= 52 && exponent > -14;
    let below = if is_power { unit / 4.0 } else { unit / 2.0 };
    let fits = |distance: f64, limit: f64| if is_even { distance <= limit } else { distance < limit };
    if parsed < number { fits(number - parsed, below) } else { fits(parsed - number, unit / 2.0) }
}

/// Returns the binary exponent of a positive normal number.
fn exponent_of(number: f64) -> i32 {
    i32::try_from(number.to_bits() >> 52 & 0x7ff).unwrap_or(0).saturating_sub(1023)
}

/// Common format of the floats of an array.
#[derive(Debug)]
pub(crate) struct FloatFormat {
    width: FloatWidth,
    is_exponential: bool,
    /// True to print a sign before positive numbers, as in imaginary parts.
    with_sign: bool,
    /// Characters before the point, and after it.
    left: usize,
    right: usize,
    /// Digits after the point in scientific notation.
    places: usize,
    exponent_digits: usize,
}

impl FloatFormat {
    /// Chooses the format for `numbers`.
    pub(crate) fn new(numbers: &[f64], width: FloatWidth, with_sign: bool) -> Self {
        let finite = || numbers.iter().copied().filter(|number| number.is_finite());
        let nonzero = || finite().map(f64::abs).filter(|number| *number != 0.0);
        let (max, min) = (nonzero().fold(0.0, f64::max), nonzero().fold(f64::INFINITY, f64::min));
        let is_exponential =
            max > 0.0 && (max >= width.exponent_cutoff() || min < 0.0001 || ratio(max, min, width) > 1000.0);
        let mut format =
            Self { width, is_exponential, with_sign, left: 0, right: 0, places: 0, exponent_digits: 0 };
        for number in finite() {
            let text = if is_exponential { format.scientific(number, 0) } else { format.positional(number) };
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, ""));
            let (left, right) = digits.split_once('.').unwrap_or((digits, ""));
            format.left = format.left.max(left.len());
            format.places = format.places.max(right.len());
            format.exponent_digits = format.exponent_digits.max(exponent.len().saturating_sub(1));
        }
        format.right = format.places;
        if is_exponential {
            format.right = format.places.saturating_add(format.exponent_digits).saturating_add(2);
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            let has_sign = with_sign || numbers.contains(&f64::NEG_INFINITY);
            let offset = format.right.saturating_add(1);
            let infinity = 3_usize.saturating_add(usize::from(has_sign)).saturating_sub(offset);
            format.left = format.left.max(3_usize.saturating_sub(offset)).max(infinity);
        }
        format
    }

    /// Formats a number with the padding that aligns it with the others.
    pub(crate) fn format(&self, number: f64) -> String {
        if !number.is_finite() {
            let text = match (number.is_nan(), number > 0.0) {
                (true, _) => "nan",
                (_, true) => "inf",
                _ => "-inf",
            };
            let sign = if self.with_sign && !text.starts_with('-') { "+" } else { "" };
            let width = self.left.saturating_add(self.right).saturating_add(1);
            return format!("{:>width$}", format!("{sign}{text}"));
        }
        let text =
            if self.is_exponential { self.scientific(number, self.places) } else { self.positional(number) };
        let (left, right) = text.split_once('.').unwrap_or((&text, ""));
        format!("{left:>left_width$}.{right:<right_width$}", left_width = self.left, right_width = self.right)
    }

    fn sign(&self, number: f64) -> &'static str {
        match (number.is_sign_negative(), self.with_sign) {
            (true, _) => "-",
            (_, true) => "+",
            _ => "",
        }
    }

    /// Formats a number without an exponent, trailing zeros dropped, with its point.
    fn positional(&self, number: f64) -> String {
        let shortest = self.width.shortest(number.abs());
        let places = decimal_places(&shortest);
        let text =
            if places > PRECISION { format!("{:.PRECISION$}", number.abs()) } else { expand(&shortest) };
        let (left, right) = text.split_once('.').unwrap_or((&text, ""));
        format!("{}{left}.{}", self.sign(number), right.trim_end_matches('0'))
    }

    /// Formats a number with an exponent, and at least `places` digits after the point.
    fn scientific(&self, number: f64, places: usize) -> String {
        let mut text = self.width.shortest(number.abs());
        let found = text.split_once('e').map_or(0, |(digits, _)| digits.len().saturating_sub(2));
        if found > PRECISION || found < places {
            let places = places.max(found.min(PRECISION));
            text = format!("{:.places$e}", number.abs());
            if found > PRECISION {
                text = trim_zeros(&text);
            }
        }
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (left, right) = digits.split_once('.').unwrap_or((digits, ""));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        let width = self.exponent_digits.max(2);
        format!("{}{left}.{right:0<places$}e{sign}{exponent:0>width$}", self.sign(number))
    }
}

/// Divides as NumPy does, in the precision of the dtype.
fn ratio(max: f64, min: f64, width: FloatWidth) -> f64 {
    match width {
        #[expect(clippy::cast_possible_truncation, reason = "NumPy divides two float32")]
        FloatWidth::Single => f64::from(max as f32 / min as f32),
        FloatWidth::Half | FloatWidth::Double => max / min,
    }
}

/// Returns the number of digits after the point that a number in scientific notation needs without its exponent.
fn decimal_places(scientific: &str) -> usize {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let fraction = digits.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let exponent: isize = exponent.parse().unwrap_or(0);
    fraction.saturating_add_signed(exponent.saturating_neg())
}

/// Writes a number in scientific notation without its exponent.
fn expand(scientific: &str) -> String {
    let (digits, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: isize = exponent.parse().unwrap_or(0);
    let digits = digits.replace('.', "");
    let point = 1_isize.saturating_add(exponent);
    match usize::try_from(point) {
        Ok(0) | Err(_) => format!("0.{}{digits}", "0".repeat(point.unsigned_abs())),
        Ok(point) if point >= digits.len() => format!("{digits:0<point$}."),
        Ok(point) => {
            let (left, right) = digits.split_at(point);
            format!("{left}.{right}")
        }
    }
}

/// Formats a number that is alone, as `str` of a NumPy scalar: `0.1`, `1e-05`, `1.0`.
pub(crate) fn scalar(number: f64, width: FloatWidth) -> String {
    if !number.is_finite() {
        return if number.is_nan() { "nan".to_owned() } else { number.to_string() };
    }
    let shortest = width.shortest(number.abs());
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
        let (exponent_sign, exponent) =
            exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{sign}{digits}e{exponent_sign}{exponent:0>2}");
    }
    let text = expand(&shortest);
    let zero = if text.ends_with('.') { "0" } else { "" };
    format!("{sign}{text}{zero}")
}
