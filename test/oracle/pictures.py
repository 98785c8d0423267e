"""Small pictures of the forms that are read, as test/data/reader/pictures/, and what Pillow makes of them.

    python3 test/oracle/pictures.py            (needs Pillow and numpy)

pictures.rgb (beside the folder) has the pictures in the order of their names, each [3, 13, 19] bytes, turned as Exif says."""
from PIL import Image, ImageOps
import numpy as np, os, io, struct
rng=np.random.default_rng(5)
base=Image.fromarray((rng.random((7,9,3))*255).astype(np.uint8)).resize((19,13),Image.BILINEAR)
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'data', 'reader', 'pictures')
os.makedirs(ROOT, exist_ok=True)
out=[]
def put(name,fn):
    p=os.path.join(ROOT,name); fn(p); out.append(p)
put('rgb.bmp',lambda p: base.save(p))
put('pal.bmp',lambda p: base.quantize(200).save(p))
put('one.bmp',lambda p: base.convert('1').save(p))
put('gray.bmp',lambda p: base.convert('L').save(p))
put('rgba.bmp',lambda p: base.convert('RGBA').save(p))
put('p.gif',lambda p: base.quantize(64).save(p))
put('inter.gif',lambda p: base.quantize(64).save(p,interlace=1))
put('anim.gif',lambda p: base.quantize(64).save(p,save_all=True,append_images=[base.rotate(180).quantize(32)]))
put('lossless.webp',lambda p: base.save(p,lossless=True))
put('lossy.webp',lambda p: base.save(p,quality=80))
for o in range(1,9):
    ex=Image.Exif(); ex[0x0112]=o
    b=base if o<5 else base.transpose(Image.TRANSPOSE)
    put(f'o{o}.png',lambda p: b.save(p,exif=ex.tobytes()))
    put(f'o{o}.webp',lambda p: b.save(p,lossless=True,exif=ex.tobytes()))
# top-down, 16 bit, 4 bit, RLE8, RLE4
a=np.asarray(base)[:, :, ::-1]; h,w=a.shape[:2]
def bmp(info,pal,px,bits,kind=0,height=h,extra=b''):
    off=14+40+len(extra)+len(pal)
    return b'BM'+struct.pack('<IHHI',off+len(px),0,0,off)+struct.pack('<IiiHHIIiiII',40,w,height,1,bits,kind,len(px),0,0,len(pal)//4,0)+extra+pal+px
rows=b''.join(r.tobytes()+b'\0'*(-len(r.tobytes())%4) for r in a)
put('down.bmp',lambda p: open(p,'wb').write(bmp(0,b'',rows,24,height=-h)))
v=((a[:,:,2].astype(int)>>3)<<10|(a[:,:,1].astype(int)>>3)<<5|(a[:,:,0].astype(int)>>3)).astype('<u2')[::-1]
rows=b''.join(r.tobytes()+b'\0'*(-len(r.tobytes())%4) for r in v)
put('b555.bmp',lambda p: open(p,'wb').write(bmp(0,b'',rows,16)))
v=((a[:,:,2].astype(int)>>3)<<11|(a[:,:,1].astype(int)>>2)<<5|(a[:,:,0].astype(int)>>3)).astype('<u2')[::-1]
rows=b''.join(r.tobytes()+b'\0'*(-len(r.tobytes())%4) for r in v)
put('b565.bmp',lambda p: open(p,'wb').write(bmp(0,b'',rows,16,3,extra=struct.pack('<III',0xf800,0x7e0,0x1f))))
pal=b''.join(bytes([i*7%256,i*31%256,i*57%256,0]) for i in range(256))
idx=(np.add.outer(np.arange(h)//3*5,np.arange(w)//4*3)%200).astype(np.uint8)
rle=b''
for r in idx[::-1]:
    i=0
    while i<w:
        j=i
        while j<w and r[j]==r[i]: j+=1
        if j-i>=3 or w-i<3: rle+=bytes([j-i,r[i]]); i=j
        else:
            j=min(w,i+5); n=j-i; rle+=bytes([0,n])+r[i:j].tobytes()+b'\0'*(n%2); i=j
    rle+=b'\0\0'
rle+=b'\0\1'
put('rle8.bmp',lambda p: open(p,'wb').write(bmp(0,pal,rle,8,1)))
rows=b''.join(r.tobytes()+b'\0'*(-len(r)%4) for r in idx[::-1])
put('plain8.bmp',lambda p: open(p,'wb').write(bmp(0,pal,rows,8)))
d4=idx%16; rle=b''
for r in d4[::-1]:
    i=0
    while i<w:
        j=i
        while j<w and r[j]==r[i]: j+=1
        if j-i>=3 or w-i<3: rle+=bytes([j-i,r[i]<<4|r[i]]); i=j
        else:
            j=min(w,i+5); n=j-i; q=list(r[i:j])+[0]*(n%2); b=bytes(q[k]<<4|q[k+1] for k in range(0,len(q),2)); rle+=bytes([0,n])+b+b'\0'*(len(b)%2); i=j
    rle+=b'\0\0'
rle+=b'\0\1'
put('rle4.bmp',lambda p: open(p,'wb').write(bmp(0,pal[:64],rle,4,2)))
np_rows=[]
for r in d4[::-1]:
    q=list(r)+[0]*(w%2); b=bytes(int(q[k])<<4|int(q[k+1]) for k in range(0,len(q),2)); np_rows.append(b+b'\0'*(-len(b)%4))
put('plain4.bmp',lambda p: open(p,'wb').write(bmp(0,pal[:64],b''.join(np_rows),4)))
with open(os.path.join(ROOT, '..', 'pictures.rgb'), 'wb') as f:
    for p in sorted(out):
        im = ImageOps.exif_transpose(Image.open(p))
        im = im.convert('RGBA' if p.endswith('webp') else 'RGB').convert('RGB')
        f.write(np.asarray(im).transpose(2, 0, 1).tobytes())
