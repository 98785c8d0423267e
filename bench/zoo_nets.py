"""Networks for bench/zoo.py that torchvision does not have: small ones, each made to meet other operators.

NETS: name -> function that gives (module, inputs)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def images(*shape):
    return (torch.randn(*shape),)


def ids(below, *shape):
    return torch.randint(0, below, shape)


class Seq(nn.Sequential):
    """A sequence that also takes functions."""

    def __init__(self, *parts):
        super().__init__(*[p if isinstance(p, nn.Module) else Fn(p) for p in parts])


class Fn(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *x):
        return self.fn(*x)


def conv(cin, cout, act, norm=nn.BatchNorm2d, stride=1, k=3, groups=1):
    parts = [nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=norm is None)]
    return nn.Sequential(*parts, *([norm(cout)] if norm else []), act())


class UNet(nn.Module):
    def __init__(self, act, norm=nn.BatchNorm2d, up="nearest", width=32, last=nn.Sigmoid):
        super().__init__()
        w = [width * 2**i for i in range(4)]
        self.down = nn.ModuleList(
            nn.Sequential(conv(a, b, act, norm), conv(b, b, act, norm))
            for a, b in zip([3] + w, w))
        self.up = nn.ModuleList(
            nn.Sequential(conv(a + b, b, act, norm), conv(b, b, act, norm))
            for a, b in zip(w[:0:-1], w[-2::-1]))
        self.raise_ = nn.ModuleList(
            nn.ConvTranspose2d(c, c, 2, 2) if up == "deconv" else nn.Upsample(
                scale_factor=2, mode=up, **({"align_corners": False} if up == "bilinear" else {}))
            for c in w[:0:-1])
        self.head = nn.Sequential(nn.Conv2d(width, 1, 1), last())

    def forward(self, x):
        kept = []
        for i, d in enumerate(self.down):
            x = d(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for u, r, k in zip(self.up, self.raise_, kept[-2::-1]):
            x = u(torch.cat([r(x), k], 1))
        return self.head(x)


class Act(nn.Module):
    """Convolutions, each followed by another activation."""

    def __init__(self, acts, cin=3, width=32, dims=2):
        super().__init__()
        c = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.convs = nn.ModuleList(c(cin if i == 0 else width, width, 3, padding=1)
                                   for i in range(len(acts)))
        self.acts = nn.ModuleList(a if isinstance(a, nn.Module) else Fn(a) for a in acts)

    def forward(self, x):
        for c, a in zip(self.convs, self.acts):
            x = a(c(x))
        return x


class Wave(nn.Module):
    """Gated dilated convolutions over time."""

    def __init__(self, width=32, layers=8):
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**i)
                                   for i in range(layers))
        self.mix = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.last = nn.Conv1d(width, 256, 1)

    def forward(self, x):
        x, skip = self.first(x), 0
        for g, m in zip(self.gates, self.mix):
            a, b = g(F.pad(x, (g.dilation[0], 0))).chunk(2, 1)
            y = m(torch.tanh(a) * torch.sigmoid(b))
            x, skip = x + y, skip + y
        return self.last(F.relu(skip))


class Gcn(nn.Module):
    """Graph convolutions: gather the ends of edges, add into nodes."""

    def __init__(self, cin=32, width=64, reduce="sum"):
        super().__init__()
        self.fc, self.reduce = nn.ModuleList([nn.Linear(cin, width), nn.Linear(width, width)]), reduce

    def forward(self, x, edges):
        src, dst = edges[0], edges[1]
        for fc in self.fc:
            m = fc(x)[src]
            zero = torch.zeros(x.shape[0], m.shape[1])
            if self.reduce == "sum":
                y = zero.index_add(0, dst, m)
            else:
                y = zero.scatter_reduce(0, dst[:, None].expand_as(m), m, self.reduce,
                                        include_self=self.reduce == "amax")
            x = F.relu(y)
        return x


class Gat(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.fc, self.a = nn.Linear(width, width), nn.Linear(2 * width, 1)

    def forward(self, x, edges):
        h = self.fc(x)
        s = F.leaky_relu(self.a(torch.cat([h[edges[0]], h[edges[1]]], 1)))[:, 0]
        top = torch.full((x.shape[0],), -1e9).scatter_reduce(0, edges[1], s, "amax")
        e = torch.exp(s - top[edges[1]])
        total = torch.zeros(x.shape[0]).scatter_add(0, edges[1], e)
        w = (e / total[edges[1]])[:, None] * h[edges[0]]
        return F.elu(torch.zeros_like(h).scatter_add(0, edges[1][:, None].expand_as(w), w))


class Recurrent(nn.Module):
    def __init__(self, kind, width=128, layers=2, both=False, first=True, vocab=256):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.net = kind(width, width, layers, batch_first=first, bidirectional=both)
        self.head = nn.Linear(width * (2 if both else 1), vocab)

    def forward(self, x):
        return self.head(self.net(self.embed(x))[0])


class RmsBlock(nn.Module):
    """A decoder block with rotary positions, root-mean-square norms and a gated dense part."""

    def __init__(self, width=128, heads=4):
        super().__init__()
        self.heads, self.scale = heads, nn.Parameter(torch.ones(width))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale

    def turn(self, x):
        n, d = x.shape[2], x.shape[3] // 2
        t = torch.arange(n)[:, None] / 10000**(torch.arange(d)[None] / d)
        a, b = x[..., :d], x[..., d:]
        return torch.cat([a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()], -1)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = [z.reshape(b, n, self.heads, -1).transpose(1, 2)
                   for z in self.qkv(self.norm(x)).split(c, -1)]
        y = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, n, c))
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Mixer(nn.Module):
    def __init__(self, tokens=64, width=128, layers=4):
        super().__init__()
        self.first = nn.Conv2d(3, width, 8, 8)
        mk = lambda n: nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n))
        self.a, self.b = (nn.ModuleList(mk(n) for _ in range(layers)) for n in (tokens, width))
        self.n = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))

    def forward(self, x):
        x = self.first(x).flatten(2).transpose(1, 2)
        for i, (a, b) in enumerate(zip(self.a, self.b)):
            x = x + a(self.n[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + b(self.n[2 * i + 1](x))
        return x.mean(1)


class Head(nn.Module):
    """A detector's head: boxes of a grid, sigmoid and exp of slices, everything concatenated."""

    def __init__(self, classes=20):
        super().__init__()
        self.body = nn.Sequential(conv(3, 32, nn.SiLU, stride=2), conv(32, 64, nn.SiLU, stride=2))
        self.mid, self.far = conv(64, 128, nn.SiLU, stride=2), conv(128, 128, nn.SiLU, stride=2)
        self.heads = nn.ModuleList(nn.Conv2d(128, 3 * (5 + classes), 1) for _ in range(2))

    def forward(self, x):
        m = self.mid(self.body(x))
        out = []
        for f, h, stride in ((m, self.heads[0], 8), (self.far(m), self.heads[1], 16)):
            y = h(f)
            b, _, hh, ww = y.shape
            y = y.view(b, 3, -1, hh, ww).permute(0, 1, 3, 4, 2)
            gy, gx = torch.meshgrid(torch.arange(hh), torch.arange(ww), indexing="ij")
            xy = (y[..., :2].sigmoid() * 2 - 0.5 + torch.stack([gx, gy], -1)) * stride
            wh = (y[..., 2:4].sigmoid() * 2) ** 2 * 16
            out.append(torch.cat([xy, wh, y[..., 4:].sigmoid()], -1).reshape(b, -1, y.shape[-1]))
        return torch.cat(out, 1)


class Proposals(nn.Module):
    """The best anchors by score: top-k, gather, clip."""

    def __init__(self):
        super().__init__()
        self.c, self.s, self.d = conv(16, 64, nn.ReLU), nn.Conv2d(64, 3, 1), nn.Conv2d(64, 12, 1)

    def forward(self, x):
        h = self.c(x)
        s = self.s(h).permute(0, 2, 3, 1).flatten(1)
        d = self.d(h).view(x.shape[0], 3, 4, x.shape[2], x.shape[3]).permute(0, 3, 4, 1, 2).reshape(
            x.shape[0], -1, 4)
        v, i = s.topk(100, 1)
        box = torch.gather(d, 1, i[..., None].expand(-1, -1, 4))
        keep = (v.sigmoid() > 0.5) & (box[..., 2] > 0)
        return torch.where(keep[..., None], box.clamp(0, 64), torch.zeros_like(box)), v


class Capsules(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Sequential(nn.Conv2d(1, 64, 9), nn.ReLU(), nn.Conv2d(64, 64, 9, 2))
        self.w = nn.Parameter(torch.randn(10, 288, 16, 8) * 0.1)

    def squash(self, s):
        n = s.pow(2).sum(-1, keepdim=True)
        return n / (1 + n) * s / (n.sqrt() + 1e-8)

    def forward(self, x):
        u = self.squash(self.c(x).reshape(x.shape[0], 288, 8))
        hat = torch.einsum("jiok,bik->bjio", self.w, u)
        b = torch.zeros(x.shape[0], 10, 288)
        for _ in range(3):
            v = self.squash(torch.einsum("bji,bjio->bjo", b.softmax(1), hat))
            b = b + torch.einsum("bjio,bjo->bji", hat, v)
        return v.norm(dim=-1)


class Dlrm(nn.Module):
    def __init__(self, tables=8, rows=1000, width=16):
        super().__init__()
        self.bags = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.low = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        n = tables + 1
        self.rows, self.cols = torch.tril_indices(n, n, -1)
        self.high = nn.Sequential(nn.Linear(width + n * (n - 1) // 2, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x, cat):
        d = self.low(x)
        z = torch.stack([d] + [b(cat[:, i]) for i, b in enumerate(self.bags)], 1)
        dots = torch.bmm(z, z.transpose(1, 2))[:, self.rows, self.cols]
        return torch.sigmoid(self.high(torch.cat([d, dots], 1)))


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        c = lambda a, b: nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
        self.t = nn.Sequential(c(3, 64), c(64, 256))
        self.m, self.fc = nn.Linear(256, 9), nn.Sequential(
            nn.Linear(256, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 40))
        self.body = nn.Sequential(c(3, 64), c(64, 256))

    def forward(self, x):
        m = self.m(self.t(x).max(2)[0]).view(-1, 3, 3) + torch.eye(3)
        x = torch.bmm(x.transpose(1, 2), m).transpose(1, 2)
        return F.log_softmax(self.fc(self.body(x).max(2)[0]), -1)


class Conformer(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.ff = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(),
                                nn.Linear(4 * width, width))
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.att = nn.MultiheadAttention(width, 4, batch_first=True)
        self.up, self.down = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.deep = nn.Conv1d(width, width, 15, padding=7, groups=width)
        self.bn = nn.BatchNorm1d(width)

    def forward(self, x):
        x = x + 0.5 * self.ff(x)
        h = self.n1(x)
        x = x + self.att(h, h, h, need_weights=False)[0]
        y = F.glu(self.up(self.n2(x).transpose(1, 2)), 1)
        return x + self.down(F.silu(self.bn(self.deep(y)))).transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return x + self.body(x)


def style():
    n = lambda a, b, s=1: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(a, b, 3, s),
                                        nn.InstanceNorm2d(b, affine=True), nn.ReLU())
    up = nn.Upsample(scale_factor=2)
    return nn.Sequential(n(3, 32), n(32, 64, 2), n(64, 128, 2),
                         *[Residual(nn.Sequential(n(128, 128))) for _ in range(3)], up, n(128, 64),
                         up, n(64, 32), nn.Conv2d(32, 3, 3, 1, 1), nn.Tanh())


def superres(act):
    return nn.Sequential(nn.Conv2d(1, 64, 5, 1, 2), act(), nn.Conv2d(64, 64, 3, 1, 1), act(),
                         nn.Conv2d(64, 32, 3, 1, 1), act(), nn.Conv2d(32, 9, 3, 1, 1), nn.PixelShuffle(3))


def generator():
    up = lambda a, b, s, p: nn.Sequential(nn.ConvTranspose2d(a, b, 4, s, p, bias=False),
                                          nn.BatchNorm2d(b), nn.ReLU())
    return nn.Sequential(up(64, 256, 1, 0), up(256, 128, 2, 1), up(128, 64, 2, 1),
                         nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh())


def discriminator():
    c = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
    return nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), c(64, 128), c(128, 256),
                         nn.Conv2d(256, 1, 8), nn.Sigmoid())


def volume():
    c = lambda a, b: nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.BatchNorm3d(b), nn.ReLU(),
                                   nn.MaxPool3d(2))
    return Seq(c(1, 16), c(16, 32), c(32, 64), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
               nn.Linear(64, 10))


def encoder(norm_first, act="relu"):
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True, norm_first=norm_first,
                                       activation=act)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def decoder():
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(128, 4, 256, batch_first=True), 2)


ACTS = [nn.LeakyReLU(0.1), nn.ELU(), nn.Sigmoid(), nn.Tanh(), nn.Hardswish(), nn.Hardsigmoid(),
        nn.SiLU(), nn.Mish(), nn.GELU(), nn.GELU("tanh"), nn.Softplus(), nn.ReLU6(), nn.Hardtanh(),
        nn.SELU(), nn.CELU()]
RARE = [nn.PReLU(), nn.LogSigmoid(), nn.Softsign(), nn.Tanhshrink(), nn.Softshrink(), nn.Hardshrink(),
        nn.Threshold(0.1, 0.2), nn.RReLU(), lambda x: x.pow(2), lambda x: x.abs().sqrt(),
        lambda x: x * F.softplus(x).tanh(), lambda x: torch.square(x) / (1 + x.exp())]
MOVES = [lambda x: x[:, :, 1:-1, 2:][:, :, ::2], nn.PixelUnshuffle(2), nn.PixelShuffle(2),
         nn.ChannelShuffle(4), lambda x: torch.roll(x, (1, 2), (2, 3)), lambda x: x.flip(3),
         nn.ReplicationPad2d(1), nn.CircularPad2d(1), lambda x: x.repeat(1, 1, 2, 1),
         nn.Upsample(scale_factor=2, mode="bicubic"), nn.LPPool2d(2, 2), nn.AdaptiveMaxPool2d(8),
         lambda x: F.unfold(x, 2, stride=2), lambda x: F.fold(x, (8, 8), 2, stride=2),
         lambda x: x.cumsum(2), lambda x: F.normalize(x, dim=1), lambda x: x.std(3), lambda x: x.var(2)]
EDGES = lambda n, e: torch.stack([ids(n, e), ids(n, e)])

NETS = {
    "unet_leaky": lambda: (UNet(lambda: nn.LeakyReLU(0.1)), images(1, 3, 128, 128)),
    "unet_elu": lambda: (UNet(nn.ELU, up="deconv"), images(1, 3, 128, 128)),
    "unet_sigmoid": lambda: (UNet(nn.Sigmoid, up="bilinear"), images(1, 3, 96, 96)),
    "unet_tanh": lambda: (UNet(nn.Tanh, last=nn.Tanh), images(1, 3, 96, 96)),
    "unet_hardswish": lambda: (UNet(nn.Hardswish, width=16), images(2, 3, 96, 96)),
    "unet_group": lambda: (UNet(nn.SiLU, lambda c: nn.GroupNorm(8, c)), images(1, 3, 96, 96)),
    "unet_instance": lambda: (UNet(nn.LeakyReLU, nn.InstanceNorm2d), images(1, 3, 96, 96)),
    "acts": lambda: (Act(ACTS), images(1, 3, 64, 64)),
    "acts_1d": lambda: (Act(ACTS, dims=1), images(4, 3, 256)),
    "acts_3d": lambda: (Act(ACTS, dims=3, width=16), images(1, 3, 12, 24, 24)),
    "acts_rare": lambda: (Act(RARE), images(1, 3, 64, 64)),
    "moves": lambda: (Seq(*MOVES), images(2, 16, 33, 34)),
    "superres_tanh": lambda: (superres(nn.Tanh), images(1, 1, 96, 96)),
    "superres_prelu": lambda: (superres(nn.PReLU), images(1, 1, 96, 96)),
    "style": lambda: (style(), images(1, 3, 128, 128)),
    "generator": lambda: (generator(), images(4, 64, 1, 1)),
    "discriminator": lambda: (discriminator(), images(2, 3, 64, 64)),
    "volume": lambda: (volume(), images(1, 1, 32, 48, 48)),
    "wave": lambda: (Wave(), images(1, 1, 2048)),
    "gcn": lambda: (Gcn(), (torch.randn(500, 32), EDGES(500, 4000))),
    "gcn_mean": lambda: (Gcn(reduce="mean"), (torch.randn(500, 32), EDGES(500, 4000))),
    "gcn_max": lambda: (Gcn(reduce="amax"), (torch.randn(500, 32), EDGES(500, 4000))),
    "gat": lambda: (Gat(), (torch.randn(500, 32), EDGES(500, 4000))),
    "lstm": lambda: (Recurrent(nn.LSTM), (ids(256, 1, 64),)),
    "lstm_wide": lambda: (Recurrent(nn.LSTM, width=256), (ids(256, 1, 64),)),
    "lstm_both": lambda: (Recurrent(nn.LSTM, both=True), (ids(256, 4, 64),)),
    "lstm_time": lambda: (Recurrent(nn.LSTM, first=False), (ids(256, 64, 2),)),
    "gru": lambda: (Recurrent(nn.GRU), (ids(256, 1, 64),)),
    "gru_both": lambda: (Recurrent(nn.GRU, both=True), (ids(256, 4, 64),)),
    "rnn": lambda: (Recurrent(nn.RNN), (ids(256, 4, 64),)),
    "encoder": lambda: (encoder(False), (torch.randn(2, 64, 128),)),
    "encoder_gelu": lambda: (encoder(True, "gelu"), (torch.randn(1, 128, 128),)),
    "decoder": lambda: (decoder(), (torch.randn(1, 32, 128), torch.randn(1, 48, 128))),
    "attention": lambda: (Seq(RmsBlock(), RmsBlock()), (torch.randn(1, 96, 128),)),
    "mixer": lambda: (Mixer(), images(1, 3, 64, 64)),
    "detector_head": lambda: (Head(), images(1, 3, 160, 160)),
    "proposals": lambda: (Proposals(), images(1, 16, 48, 48)),
    "capsules": lambda: (Capsules(), images(2, 1, 28, 28)),
    "dlrm": lambda: (Dlrm(), (torch.randn(64, 13), ids(1000, 64, 8))),
    "pointnet": lambda: (PointNet(), images(4, 3, 512)),
    "conformer": lambda: (Seq(Conformer(), Conformer()), (torch.randn(1, 100, 128),)),
    "mlp_norm": lambda: (Seq(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.Softplus(),
                             nn.Linear(256, 256), nn.LayerNorm(256), nn.Mish(), nn.Linear(256, 8)),
                         (torch.randn(32, 64),)),
    "norm_first": lambda: (Seq(nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.MaxPool2d(2),
                               nn.BatchNorm2d(32), nn.ELU(), nn.Conv2d(32, 32, 3)),
                           images(4, 16, 48, 48)),
    "bilinear": lambda: (nn.Bilinear(32, 48, 64), (torch.randn(64, 32), torch.randn(64, 48))),
    "similarity": lambda: (Fn(lambda a, b: (F.cosine_similarity(a, b), torch.cdist(a[None], b[None]),
                                            F.pairwise_distance(a, b))),
                           (torch.randn(128, 64), torch.randn(128, 64))),
    "grid": lambda: (Fn(lambda x, g: F.grid_sample(x, g, align_corners=False)),
                     (torch.randn(1, 16, 64, 64), torch.rand(1, 64, 64, 2) * 2 - 1)),
    "fourier": lambda: (Seq(lambda x: torch.cat([torch.sin(x * 2**i * math.pi) for i in range(6)]
                                                + [torch.cos(x * 2**i) for i in range(6)], -1),
                            nn.Linear(36, 128), nn.ReLU(), nn.Linear(128, 4)),
                        (torch.randn(1024, 3),)),
}
