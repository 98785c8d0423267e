# Front door. `make help` lists what there is.
.PHONY: all
all: build/build.ninja
	ninja -C build
build/build.ninja:
	meson setup build
