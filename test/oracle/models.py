"""The zoo's models in PyTorch, written against its documentation and with the zoo's names."""
import math

import torch
import torch.nn.functional as F
from torch import nn


class Mlp(nn.Module):
    def __init__(self, inputs, hidden, classes, activation=F.relu):
        super().__init__()
        sizes = [inputs, *hidden, classes]
        self.n, self.activation = len(sizes) - 1, activation
        for k in range(self.n):
            setattr(self, f"fc{k + 1}", nn.Linear(sizes[k], sizes[k + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for k in range(self.n):
            x = getattr(self, f"fc{k + 1}")(x)
            x = self.activation(x) if k + 1 < self.n else x
        return x


class LeNet(nn.Module):
    def __init__(self, channels, side, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 5)
        self.conv2 = nn.Conv2d(width, 2 * width, 5)
        side = ((side - 4) // 2 - 4) // 2
        self.fc1 = nn.Linear(2 * width * side * side, 16 * width)
        self.fc2 = nn.Linear(16 * width, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, cin, planes, stride, bottleneck):
        super().__init__()
        out = 4 * planes if bottleneck else planes
        self.bottleneck = bottleneck
        if bottleneck:
            self.conv1 = nn.Conv2d(cin, planes, 1, bias=False)
            self.conv2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False)
            self.conv3 = nn.Conv2d(planes, out, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(out)
        else:
            self.conv1 = nn.Conv2d(cin, planes, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(planes), nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or cin != out:
            self.downsample = nn.Sequential(nn.Conv2d(cin, out, 1, stride, bias=False),
                                            nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.bottleneck:
            y = self.bn3(self.conv3(F.relu(y)))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, depth, width, classes, small=True):
        super().__init__()
        blocks = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}[depth]
        bottleneck = depth == 50
        self.small = small
        self.conv1 = nn.Conv2d(3, width, *((3, 1, 1) if small else (7, 2, 3)), bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        cin = width
        for s in range(4):
            layer = []
            for k in range(blocks[s]):
                layer.append(Block(cin, width << s, 2 if s > 0 and k == 0 else 1, bottleneck))
                cin = (width << s) * (4 if bottleneck else 1)
            setattr(self, f"layer{s + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(cin, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = x if self.small else F.max_pool2d(x, 3, 2, 1)
        for s in range(4):
            x = getattr(self, f"layer{s + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Vgg(nn.Module):
    def __init__(self, depth, side, width, classes, batch_norm=False):
        super().__init__()
        plan = {11: (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0),
                16: (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)}
        layers, cin = [], 3
        for c in plan[depth]:
            if c == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(cin, c, 3, 1, 1))
            layers += [nn.BatchNorm2d(c)] if batch_norm else []
            layers.append(nn.ReLU())
            cin = c
        self.features = nn.Sequential(*layers)
        side //= 32
        self.classifier = nn.Sequential(
            nn.Linear(512 * side * side, width), nn.ReLU(), nn.Dropout(0),
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(0), nn.Linear(width, classes))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


def conv_bn6(cin, cout, kernel, stride=1, groups=1):
    return nn.Sequential(nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
                         nn.BatchNorm2d(cout), nn.ReLU6())


class Inverted(nn.Module):
    def __init__(self, cin, expand, out, stride):
        super().__init__()
        mid = cin * expand
        layers = [] if expand == 1 else [conv_bn6(cin, mid, 1)]
        layers += [conv_bn6(mid, mid, 3, stride, mid), nn.Conv2d(mid, out, 1, bias=False),
                   nn.BatchNorm2d(out)]
        self.conv, self.skip = nn.Sequential(*layers), stride == 1 and cin == out

    def forward(self, x):
        return x + self.conv(x) if self.skip else self.conv(x)


class MobileNet(nn.Module):
    def __init__(self, classes, small=True):
        super().__init__()
        layers, cin = [conv_bn6(3, 32, 3, 1 if small else 2)], 32
        for s, (t, c, n, stride) in enumerate(((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2),
                                               (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                                               (6, 320, 1, 1))):
            for k in range(n):
                layers.append(Inverted(cin, t, c, 1 if k > 0 or (small and s == 1) else stride))
                cin = c
        layers.append(conv_bn6(cin, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0), nn.Linear(1280, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class Lstm(nn.Module):
    """Over tokens (vocab) or over features (classes, from the last step)."""

    def __init__(self, layers, width, vocab=0, features=0, classes=0):
        super().__init__()
        self.vocab = vocab
        if vocab:
            self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width if vocab else features, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocab or classes)

    def forward(self, x):
        x = self.embedding(x) if self.vocab else x
        y, _ = self.lstm(x)
        return self.head(y if self.vocab else y[:, -1])


class Attention(nn.Module):
    def __init__(self, width, heads, causal, bias, qkv, proj):
        super().__init__()
        self.heads, self.causal, self.qkv, self.proj = heads, causal, qkv, proj
        setattr(self, qkv, nn.Linear(width, 3 * width, bias=bias))
        setattr(self, proj, nn.Linear(width, width, bias=bias))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = getattr(self, self.qkv)(x).split(c, 2)
        q, k, v = (a.view(n, t, self.heads, c // self.heads).transpose(1, 2) for a in (q, k, v))
        a = q @ k.transpose(2, 3) / math.sqrt(c // self.heads)
        if self.causal:
            a = a.masked_fill(torch.ones(t, t, dtype=torch.bool).triu(1), -math.inf)
        y = (a.softmax(-1) @ v).transpose(1, 2).reshape(n, t, c)
        return getattr(self, self.proj)(y)


def norm(width, bias, eps):
    return nn.LayerNorm(width, eps=eps, bias=bias)


class GptBlock(nn.Module):
    def __init__(self, width, heads, bias):
        super().__init__()
        self.ln_1, self.ln_2 = norm(width, bias, 1e-5), norm(width, bias, 1e-5)
        self.attn = Attention(width, heads, True, bias, "c_attn", "c_proj")
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=bias),
                                  "c_proj": nn.Linear(4 * width, width, bias=bias)})

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        h = F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh")
        return x + self.mlp["c_proj"](h)


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab, bias, tie):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(GptBlock(width, heads, bias) for _ in range(layers)),
            "ln_f": norm(width, bias, 1e-5)})
        self.lm_head = None if tie else nn.Linear(width, vocab, bias=False)

    def forward(self, ids):
        t = self.transformer
        x = t["wte"](ids) + t["wpe"].weight
        for block in t["h"]:
            x = block(x)
        x = t["ln_f"](x)
        return x @ t["wte"].weight.t() if self.lm_head is None else self.lm_head(x)


class VitBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = norm(width, True, 1e-6), norm(width, True, 1e-6)
        self.self_attention = Attention(width, heads, False, True, "in_proj", "out_proj")
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0),
                                 nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.self_attention(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Vit(nn.Module):
    def __init__(self, side, layers, heads, width, patch, classes):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        self.encoder.layers = nn.ModuleDict(
            {f"encoder_layer_{k}": VitBlock(width, heads) for k in range(layers)})
        self.encoder.ln = norm(width, True, 1e-6)
        self.heads = nn.ModuleDict({"head": nn.Linear(width, classes)})

    def forward(self, x):
        x = self.conv_proj(x).flatten(2).transpose(1, 2) + self.encoder.pos_embedding
        for block in self.encoder.layers.values():
            x = block(x)
        return self.heads["head"](self.encoder.ln(x).mean(1))
