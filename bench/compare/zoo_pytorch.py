"""The networks of `aloni train --model` in PyTorch, for the scripts beside this file.

  network, loss, input, target = make("resnet18", batch=64, extents=[32, 32, 3])

The same layers as nn/models/, and so as many parameters (`aloni plan`). Tensors are channels last.
"""
import torch
from torch import nn

MESH_FILTERS = (128, 160, 192, 256, 384, 128)
CONVOLUTION = {2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
MAXIMUM = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
LAYOUT = {2: torch.channels_last, 3: torch.channels_last_3d}


def normalised(dims, channels, filters, kernel, stride=1, rectified=True):
    layers = [CONVOLUTION[dims](channels, filters, kernel, stride, kernel // 2, bias=False), NORM[dims](filters)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if rectified else []))


def lenet5(channels, classes):
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(inplace=True), nn.Linear(120, 84), nn.ReLU(inplace=True), nn.Linear(84, classes))


def mesh1k(channels, classes):
    layers = []
    for block, filters in enumerate(MESH_FILTERS):
        for i in range(3):
            layers.append(normalised(2, channels, filters, 5 if block == 0 and i == 0 else 3, 2 if i == 0 else 1))
            channels = filters
    return nn.Sequential(*layers, nn.Conv2d(channels, classes, 1))


class Residual(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.body = nn.Sequential(normalised(2, channels, filters, 3, stride),
                                  normalised(2, filters, filters, 3, rectified=False))
        self.shortcut = normalised(2, channels, filters, 1, stride, rectified=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet18(channels, classes):
    layers, last = [normalised(2, channels, 64, 3)], 64
    for stage in range(4):
        for block in range(2):
            filters = 64 << stage
            layers.append(Residual(last, filters, 2 if stage and not block else 1))
            last = filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))


class Bottleneck(nn.Module):
    def __init__(self, channels, filters, stride):
        super().__init__()
        self.body = nn.Sequential(normalised(2, channels, filters, 1), normalised(2, filters, filters, 3, stride),
                                  normalised(2, filters, 4 * filters, 1, rectified=False))
        projects = channels != 4 * filters or stride > 1
        self.shortcut = (normalised(2, channels, 4 * filters, 1, stride, rectified=False) if projects
                         else nn.Identity())

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x), inplace=True)


def resnet50(channels, classes):
    layers, last = [normalised(2, channels, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(Bottleneck(last, 64 << stage, 2 if stage and not block else 1))
            last = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))


class Grown(nn.Module):
    """A layer of DenseNet: its result is joined to its input."""

    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True), normalised(2, channels, 128, 1),
                                  nn.Conv2d(128, 32, 3, padding=1, bias=False))

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


def densenet121(channels, classes):
    layers, last = [normalised(2, channels, 64, 3)], 64
    for block, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(Grown(last))
            last += 32
        layers += [nn.BatchNorm2d(last), nn.ReLU(inplace=True)]
        if block < 3:
            layers += [nn.Conv2d(last, last // 2, 1, bias=False), nn.AvgPool2d(2)]
            last //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, classes))


class UNet(nn.Module):
    def __init__(self, dims, channels, classes, down, up, transposed):
        super().__init__()
        self.down, self.up, self.transposed = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for first, second in down:
            self.down.append(nn.Sequential(normalised(dims, channels, first, 3), normalised(dims, first, second, 3)))
            channels = second
        skips = [second for _, second in down[:-1]]
        for (first, second), fine in zip(up, transposed):
            self.transposed.append(TRANSPOSED[dims](channels, fine, 2, 2))
            joined = skips.pop() + fine
            self.up.append(nn.Sequential(normalised(dims, joined, first, 3), normalised(dims, first, second, 3)))
            channels = second
        self.pool, self.prediction = MAXIMUM[dims](2), CONVOLUTION[dims](channels, classes, 1)

    def forward(self, x):
        skips = []
        for k, pair in enumerate(self.down):
            x = pair(self.pool(x) if k else x)
            skips.append(x)
        skips.pop()
        for fine, pair in zip(self.transposed, self.up):
            x = pair(torch.cat([skips.pop(), fine(x)], 1))
        return self.prediction(x)


def unet2d(channels, classes):
    return UNet(2, channels, classes, [(64, 64), (128, 128), (256, 256), (512, 512), (1024, 1024)],
                [(512, 512), (256, 256), (128, 128), (64, 64)], [512, 256, 128, 64])


def unet3d(channels, classes):
    return UNet(3, channels, classes, [(32, 64), (64, 128), (128, 256), (256, 512)],
                [(256, 256), (128, 128), (64, 64)], [512, 256, 128])


CLASSIFIERS = {"lenet5": lenet5, "resnet18": resnet18, "resnet50": resnet50,
               "densenet121": densenet121}  # ReLU, softmax, labels
PIXELWISE = {"mesh1k": mesh1k, "unet2d": unet2d, "unet3d": unet3d}  # binary cross-entropy of each pixel
NAMES = sorted(CLASSIFIERS | PIXELWISE)


def make(name, batch, extents):
    """The network with its loss and one mini-batch. `extents`: of one sample, (depth,) height, width, channels."""
    dims, channels = len(extents) - 1, extents[-1]
    layout = LAYOUT[dims]
    x = torch.rand(batch, channels, *extents[:-1]).to(memory_format=layout)
    if name == "resnet50" and max(extents[:-1]) <= 64:
        raise ValueError(f"resnet50 is made for images above 64x64, not {extents}: aloni's has another stem there")
    if name in CLASSIFIERS:
        network, loss = CLASSIFIERS[name](channels, 10), nn.CrossEntropyLoss()
        target = torch.randint(0, 10, (batch,))
    else:
        network, loss = PIXELWISE[name](channels, 1), nn.BCEWithLogitsLoss()
        with torch.no_grad():  # the mesh networks predict fewer pixels than they read
            extents = network.eval()(x[:1]).shape[1:]
        network.train()
        target = torch.randint(0, 2, (batch, *extents)).float()
    return network.to(memory_format=layout), loss, x, target


def parameters_of(network):
    return sum(p.numel() for p in network.parameters())
