//! State space models with heads.

use crate::config::Config;
use crate::size::Size;
use crate::tree::Scope;

/// Dimensions of a state space module with heads.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of a configuration")]
pub(crate) struct Mamba2 {
    pub(crate) inner: Size,
    pub(crate) heads: Size,
    pub(crate) groups: Size,
    pub(crate) state: Size,
    pub(crate) kernel: Size,
    pub(crate) conv_bias: bool,
    pub(crate) in_bias: bool,
    pub(crate) out_bias: bool,
    pub(crate) has_norm: bool,
}

impl Mamba2 {
    /// Adds the tensors of a module.
    pub(crate) fn add(&self, m: &Scope<'_>, hidden: Size) {
        let channels = self.inner + self.groups * self.state * 2;
        for name in ["dt_bias", "A_log", "D"] {
            m.tensor(name, &[self.heads]);
        }
        m.module("conv1d", &[channels, Size(1), self.kernel], self.conv_bias);
        m.linear("in_proj", [self.inner + channels + self.heads, hidden], self.in_bias);
        if self.has_norm {
            m.module("norm", &[self.inner], false);
        }
        m.linear("out_proj", [hidden, self.inner], self.out_bias);
    }

    /// Dimensions of the models that name the keys so.
    pub(crate) fn prefixed(c: &Config<'_>) -> Self {
        let inner = c.number("mamba_d_ssm").unwrap_or(c.size("hidden_size") * c.size("mamba_expand"));
        Self {
            inner,
            heads: c.size("mamba_n_heads"),
            groups: c.size("mamba_n_groups"),
            state: c.size("mamba_d_state"),
            kernel: c.size("mamba_d_conv"),
            conv_bias: c.flag("mamba_conv_bias"),
            in_bias: c.flag("mamba_proj_bias"),
            out_bias: c.flag("mamba_proj_bias"),
            has_norm: true,
        }
    }

    /// Dimensions of the models whose keys have no prefix.
    pub(crate) fn named(c: &Config<'_>, inner: Size, heads: &str, state: &str) -> Self {
        Self {
            inner,
            heads: c.size(heads),
            groups: c.size("n_groups"),
            state: c.size(state),
            kernel: c.size("conv_kernel"),
            conv_bias: c.flag("use_conv_bias"),
            in_bias: c.flag("use_bias"),
            out_bias: c.flag("use_bias"),
            has_norm: true,
        }
    }
}
