import torch
from helpers.kernels import matmul as M
from helpers.kernels.matmul import matmul_forward as F
from helpers.timing.interleaved import compare_many
r=lambda *s,dt=torch.bfloat16: torch.randn(s,device="cuda").to(dt)
z,a=r(4099,4097),r(4095,4099); zt=M.aligned_empty(4097,4099,a.dtype,a.device); zn=M.aligned_empty(4099,4097,a.dtype,a.device); o=torch.empty_like(a); o2=M.aligned_empty(4095,4099,a.dtype,a.device)
d={"product":lambda:F(a,z),"torch":lambda:a@z,"b transposing":lambda:M.copied(zt,z.T),"b straight":lambda:M.copied(zn,z),"out":lambda:M.copied(o,o2)}
for f in d.values(): f()
for k,v in compare_many(d,against="torch",budget_s=.4).items(): print(k,f"{v.median_us:.1f} us, torch/ours {1/v.ratio:.3f}",flush=True)
