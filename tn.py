import torch
from helpers.kernels import matmul as M
from helpers.kernels.matmul import MatmulPlan as P, matmul_forward as F
from helpers.timing.interleaved import compare_many
r=lambda *s,dt=torch.bfloat16: torch.randn(s,device="cuda").to(dt)
def go(t,d):
    for f in d.values(): f()
    for k,v in compare_many(d,against="torch",budget_s=.3).items(): print(t,k,f"{v.median_us:.1f} us, torch/ours {1/v.ratio:.3f}",flush=True)
a,w=r(4096,4096),r(4096,4096)
go("TN 4096",{"torch":lambda:a@w.T,"ours":lambda:F(a,w.T)})
go("NN 4096",{"torch":lambda:a@w,"ours":lambda:F(a,w)})
go("TT 4096",{"torch":lambda:a.T@w.T,"ours":lambda:F(a.T,w.T)})
x=M.copied(M.aligned_empty(4095,4099,a.dtype,a.device),r(4095,4099)); y=M.copied(M.aligned_empty(4097,4099,a.dtype,a.device),r(4097,4099)); yn=M.copied(M.aligned_empty(4099,4097,a.dtype,a.device),r(4099,4097))
d={"torch":lambda:x@y.T,"NT 128x256":lambda:F(x,y.T,plan=P("descriptors",128,256,64,8,4)),"NT 128x128":lambda:F(x,y.T,plan=P("descriptors",128,128,64,8,4)),"NN 128x256":lambda:F(x,yn,plan=P("descriptors",128,256,64,8,4)),"NN 128x128":lambda:F(x,yn,plan=P("descriptors",128,128,64,8,4))}
go("odd, arranged, with c's copy",d)
o=torch.empty(4095,4097,dtype=a.dtype,device="cuda"); o2=M.aligned_empty(4095,4097,a.dtype,a.device)
z=r(4099,4097); zt=M.aligned_empty(4097,4099,a.dtype,a.device); zn=M.aligned_empty(4099,4097,a.dtype,a.device)
go("copies",{"torch":lambda:M.copied(o,o2),"b transposing":lambda:M.copied(zt,z.T),"b straight":lambda:M.copied(zn,z)})
