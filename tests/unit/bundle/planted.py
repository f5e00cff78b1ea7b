"""What people leave in the places that a report is made of; every one of them is made up."""

from __future__ import annotations

import base64

_KEY = "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZWQyNTUxOQ"

# One a line: what it is, two blanks, what nobody is to read. Never the first but all of the second.
_LIST = """
netrc password  zuGvogel-77
ldap bindpw  Kn0chenmark!x
mysql -p  n4chtiGall
vault token  hvs.CAESIJq8zQmPzXkqUeWnBvRtYu
vault batch token  hvb.AAAAAQKqzUeWnBvRtYuPlMnB
aws access key  AKIAQ7ZLW3XN5T4EXR2B
aws secret key  wJbzrQUtnFEMwK7MDENGbPxRficYZZ9kqq1T
aws session  IQoJb3JpZ2luX2VjEJr8zzwaCXVzLWVhc3Qt
gcp key id  5f1e0c9a7b3d2846aa01
gcp api key  AIzaSyBq1mZ7xWv3kP0dR8tQyU5nC2jH4gLfEaT
azure account key  Zm9vYmFyMTIzNDU2Nzg5MGFiY2RlZmdoaWprbG1ub3A9PQ
azure sas  sv2022ZigQ9ab8Zkd
azure client secret  q8Q~zTnRr3vVbYpLkJhGfDsAqWeRtY
github token  ghp_Zq81kWmX92LpVnTb7YcRdEa64HsUgJ
github fine token  github_pat_11AZZQ0Y9kLmNpQrStUvWx
gitlab token  glpat-zQ8kXmW2pLvNtB7yRc
gitlab runner token  GR1348941zQ8kXmW2pLvN
slack token  xoxb-7712990033-kkQzWmXpLv
slack hook  T0ZQ8KXMW/B0ZPLVN/zQ8kXmW2pLvNtB
hugging face token  hf_zQkXmWpLvNtByRcDeAfHsUgJ
openai key  sk-proj-zQ8kXmW2pLvNtB7yRcDe
anthropic key  sk-ant-api03-zQ8kXmW2pLvN
wandb key  9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c
npm token  npm_zQ8kXmW2pLvNtB7yRcDeA4fHsUgJ1oIk0wXv
pypi token  pypi-AgEIcHlwaS5vcmcCJGzQ8kXmW2
docker token  dckr_pat_zQ8kXmW2pLvNtB7yRc
stripe key  rk_live_zQ8kXmW2pLvNtB7y
sendgrid key  SG.zQ8kXmW2pLvNtB7y.RcDeA4fHsUgJ1oIk
digitalocean token  dop_v1_9f8e7d6c5b4a39281706f5e4d3c2b1a0
telegram bot  7712990033:AAFzQ8kXmW2pLvNtB7yRcDeA4fHs
discord token  MTk4NjIyNDgzNDcxOTI1MjQ4.Zq81kW.mX92LpVn
web token  eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ6cTgifQ.c2lnbmF0dXJlenE4
saml blob  PHNhbWw6QXNzZXJ0aW9uIElEPSJ6cTgiPg
basic login  enE4dXNlcjpTb21tZXIyMDI2
url login  zq8user:S0mmerw1nd
pgpass line  db.zq8.test:5432:zqdb:zquser:Pr4ll!ne
docker auth  enE4dXNlcjpkb2NrZXI5OQ==
kerberos principal  zq8admin/HPC@ZQ8.EXAMPLE.TEST
kerberos keytab  0502000000470002000a5a51382e544553
ssh key  {key}
ssh public key  AAAAC3NzaC1lZDI1NTE5AAAAIzQ8kXmW2pLvNtB7yRcDe
rsa body  MIIEpAIBAAKCAQEAzq8kXmW2pLvNtB7yRcDeA4fHsUgJ1oIk
certificate  MIIDdzCCAl+gAwIBAgIEzq8kXjANBgkqhkiG9w0BAQsFADBs
wireguard key  yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk=
wireguard preshared  zq8P5TF+lXXJte14tji3zlMNqhd2rYUIgJBgB3fBmk0=
age key  AGE-SECRET-KEY-1ZQ8KXMW2PLVNTB7YRCDEA4FHSUGJ1
pgp block  lQOYBGZq8kXBCADzq8kXmW2pLvNtB7yRcDeA
munge key  mZq8kXmW2pLvNtB7yRcDeA4fHsUgJ1oIk0wXv9BnMe
slurm jwt key  S8zq1kXmW2pLvNtB7yRcDeA4fHs
luks passphrase  Krokodil-Regen-Bahnhof-9
wifi password  Gartenzwerg2024!
ssid  FRITZ!Box 7590 ZQ
ip address  10.77.13.201
public address  84.137.22.190
address with port  172.29.4.18:6818
network  192.168.177.0/24
ipv6 address  2a02:908:1ab4:7c20:9d3e:11ff:fe22:9a0b
ipv6 short  fd5c:77aa:12::9b
link local  fe80::5054:ff:fe7a:91c3
mac address  9c:6b:00:7a:91:c3
mac of windows  9C-6B-00-7A-91-C3
mac of cisco  9c6b.007a.91c3
mac bare  9c6b007a91c3
infiniband guid  98039b03007a91c3
wwn  naa.5002538e40b7a91c
host name  brutus-login3
node list  brutus[017-064]
fqdn  brutus-login3.zq-uni.test
fqdn in public form  gpu7.informatik.zquni.de
short domain  zqlab.local
windows computer  DESKTOP-7F3K2P9
windows domain  ZQKLINIK\\mmustermann
windows path  C:\\Users\\Maximiliane\\Daten
mac book  Annikas-MacBook-Pro.local
e-mail  annika.zq@klinikum-zq.test
e-mail with umlaut  jörg.größe@zq-uni.test
phone  +49 89 4140 2217
phone local  089-4140-2217
phone american  (555) 867-5309
phone dotted  555.867.5309
phone bare  01714402217
name  Annegret Waldhäusler
name with prefix  Dr. Siobhán O'Brádaigh
name of slavs  Wojciech Brzęczyszczykiewicz
name of turks  Çağlayan Öztürk
name plain  Friedhelm Kleinschmidt
initials and name  J. P. Hochstätter
user name  kleinschmidtf
user number  u4471-kleins
patient id  PAT-00418827
mrn  MRN 00457182
case number  Fall-2024-08817
insurance number  A123456780
social security  536-90-4399
tax number  DE811907980
date of birth  1974-03-02
iban  DE89370400440532013000
card number  4539 1488 0343 6467
sample  TCGA-02-0001-01C
genome run  HWI-ST1276:71:C1162ACXX
serial of disk  S4EWNX0R913274
by-id of disk  ata-WDC_WD4003FZEX-00Z4SA0_WD-WCC130912345
serial of gpu  1325021043981
serial of board  PCBZ0319-77-KL
service tag  7QX93K2
asset tag  INV-2023-004417
uuid  4c4c4544-0051-5810-8039-b7c04f4b3232
uuid upper  4C4C4544-0051-5810-8039-B7C04F4B4343
uuid bare  4c4c454400515810803ab7c04f4b5454
gpu uuid  GPU-5ad1c3b2-77aa-4bbb-9ccc-0123456789ab
machine id  f3b1c8d29e7a4056b1d0c9e8f7a6b5c4
windows license  W269N-WFGWX-YVC9B-4J6C9-T83GX
matlab license  40871234-ZQLIC
license server  27000@flexlm.zq.test
project path  /projects/krebsregister-bayern/kohorte
work path  /lustre/scratch/p0021791/onkologie
share  //nas-zq07/Gruppenlaufwerk
nfs export  nas-zq07:/vol/onkologie
job name  onkologie-mammaca-v3
job path  /home/kleinschmidtf/mammaca/train.py
comment  fragt Kleinschmidt wenn das ausfaellt
environment value  Zwiebelkuchen42
proxy  http://proxy-zq:Pf3ffer@wwwproxy.zq.test:8080
no proxy domain  .intern.zq-klinikum.test
mirror host  debmirror.rrzq.test
registry path  harbor.zq.test/onko/mammaca:3
swarm token  SWMTKN-1-3pu6hszjas19xyp7ghgosyx9k8atbfcr
account  onko-mammaca-2024
reservation  kohortenlauf
ticket  ZQHELP-44178
url in a path  https://git.zq.test/onko/mammaca.git
cookie  PHPSESSID=q8zkxmw2plvntb7
otp secret  JBSWY3DPEHPK3PXPZQ
pin  PUK 83114207
bitcoin address  bc1qzq8kxmw2plvntb7yrcdea4fhsugj1
coordinates  48.110872, 11.470063
number plate  M-ZQ 4711
key of a database  mongodb+srv://zq8:Fl13der@cl0.zq.test
connection string  AccountKey=zq8KXMW2pLvNtB7yRcDe==
ansible vault  $ANSIBLE_VAULT;1.1;AES256;zq8
hash of a password  $6$zq8salt$kXmW2pLvNtB7yRcDeA4fHsUgJ1oIk
ntlm hash  aad3b435b51404eeaad3b435b51404ef
s3 bucket  s3://zq-onkologie-rohdaten
git commit author  Annegret W. <aw@zq.test>
"""

SECRETS = {
    what: text.replace("{key}", _KEY)
    for what, _, text in (line.partition("  ") for line in _LIST.strip().split("\n"))
}


def encoded(text: str) -> str:
    """As a header or a file of a cluster may hold it."""
    return base64.b64encode(text.encode()).decode()
