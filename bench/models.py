"""The benchmark workloads in PyTorch: the same maths as the zoo models of the same names.

Each entry of WORKLOADS gives the module, the batch, inputs and targets, the loss and the optimizer.
`python3 bench/models.py DIR` exports every workload to DIR/NAME.onnx with a symbolic batch.
"""
import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 5), nn.Conv2d(32, 64, 5)
        self.fc1, self.fc2 = nn.Linear(64 * 4 * 4, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.downsample = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class Resnet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        layers, cin = [], 64
        for cout, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers.append(nn.Sequential(BasicBlock(cin, cout, stride), BasicBlock(cout, cout, 1)))
            cin = cout
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Vgg(nn.Module):
    """59.6 million parameters on 64x64 images: more to transfer than to compute."""

    def __init__(self):
        super().__init__()
        layers, cin = [], 3
        for c in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512):
            layers += [nn.MaxPool2d(2)] if c == 0 else [nn.Conv2d(cin, c, 3, 1, 1), nn.ReLU()]
            cin = c or cin
        self.features = nn.Sequential(*layers)
        self.fc1, self.fc2 = nn.Linear(512 * 4 * 4, 4096), nn.Linear(4096, 4096)
        self.fc3 = nn.Linear(4096, 10)

    def forward(self, x):
        x = self.features(x).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers=4, heads=4, width=256, context=128, vocab=256):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


class Lstm(nn.Module):
    def __init__(self, layers=2, width=256, vocab=256):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


def _images(batch, *shape):
    return torch.randn(batch, *shape), torch.randint(0, 10, (batch,))


def _tokens(batch, context):
    return torch.randint(0, 256, (batch, context)), torch.randint(0, 256, (batch, context))


def _sgd(params, fused):
    return torch.optim.SGD(params, lr=0.01, momentum=0.9, fused=fused)


def _adamw(params, fused):
    return torch.optim.AdamW(params, lr=3e-4, fused=fused)


# name: (module, batch, data(batch), optimizer, convolutional)
WORKLOADS = {
    "mlp": (Mlp, 128, lambda n: _images(n, 784), _sgd, False),
    "lenet": (Lenet, 64, lambda n: _images(n, 1, 28, 28), _sgd, True),
    "resnet18": (Resnet18, 64, lambda n: _images(n, 3, 32, 32), _sgd, True),
    "vgg": (Vgg, 16, lambda n: _images(n, 3, 64, 64), _sgd, True),
    "gpt": (Gpt, 16, lambda n: _tokens(n, 128), _adamw, False),
    "lstm": (Lstm, 32, lambda n: _tokens(n, 64), _adamw, False),
}


def loss_of(logits, target):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))


def make(name, seed=1):
    torch.manual_seed(seed)
    module, batch, data, optimizer, conv = WORKLOADS[name]
    return module(), batch, data, optimizer, conv


def export(name, path):
    """ONNX by PyTorch's own exporter, batch symbolic."""
    model, _, data, _, _ = make(name)
    model.eval()
    x = data(2)[0]
    dim = torch.export.Dim("N", min=1, max=4096)
    torch.onnx.export(model, (x,), path, input_names=["x"], output_names=["y"], dynamo=True,
                      external_data=False, dynamic_shapes=({0: dim},), verbose=False)


if __name__ == "__main__":
    os.makedirs(sys.argv[1], exist_ok=True)
    for workload in sys.argv[2:] or WORKLOADS:
        export(workload, os.path.join(sys.argv[1], workload + ".onnx"))
