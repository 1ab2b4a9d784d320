// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace penstock::detail {

/// What a report looks like, by day and by night.
inline constexpr std::string_view page_style = R"(
:root{color-scheme:light dark;--page:#f4f5f7;--card:#fff;--text:#1b1f27;--quiet:#5b6472;--rule:#e1e4ea;--fill:#2563eb;
--good:#15803d;--bad:#c81e1e;--c0:#2563eb;--c1:#c2570c;--c2:#0b8457;--c3:#8b3fd1;--c4:#be185d;--c5:#0e7490}
@media(prefers-color-scheme:dark){:root{--page:#101318;--card:#191d24;--text:#e7eaf0;--quiet:#9aa4b2;--rule:#2c323c;
--fill:#6ea1ff;--good:#4cc77c;--bad:#ff7b72;--c0:#6ea1ff;--c1:#ff9e57;--c2:#4cd6a0;--c3:#c796ff;--c4:#ff86b3;--c5:#5fd0e8}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.45 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 24px 40px}
header{display:flex;flex-wrap:wrap;align-items:baseline;gap:6px 14px}
h1{font-size:26px;line-height:1.2;margin:0;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:15px;margin:0 0 10px}
.quiet{color:var(--quiet);font-size:13px}
.status{font-size:13px;font-weight:600;padding:2px 11px;border-radius:99px;border:1px solid currentColor;color:var(--fill)}
.status.done{color:var(--good)}.status.error,.message{color:var(--bad)}
.message{margin:14px 0 0;padding:10px 14px;border:1px solid currentColor;border-radius:10px;overflow-wrap:anywhere}
.progress{margin:18px 0 6px;height:10px;border-radius:99px;background:var(--rule);overflow:hidden}
.progress div{height:100%;background:var(--fill);border-radius:99px}
.under{display:flex;flex-wrap:wrap;justify-content:space-between;gap:4px 20px;font-variant-numeric:tabular-nums}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:14px;margin:20px 0 14px;padding:0}
.card,.figures>div{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:14px 16px}
.figures dt{color:var(--quiet);font-size:13px}
.figures dd{margin:2px 0 0;font-size:23px;font-weight:600;font-variant-numeric:tabular-nums;line-height:1.25}
.figures dd.quiet{font-size:13px;font-weight:400}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:14px;margin-bottom:14px}
figure{margin:0;min-width:0}
figcaption{display:flex;flex-wrap:wrap;align-items:baseline;gap:2px 14px;margin-bottom:6px}
figcaption b{font-size:15px;overflow-wrap:anywhere}
figcaption span{font-variant-numeric:tabular-nums}
.key{display:inline-block;width:14px;height:3px;border-radius:2px;background:var(--c);margin-right:6px;vertical-align:middle}
svg{display:block;width:100%;height:auto}
.grid{stroke:var(--rule)}.axis{stroke:var(--quiet)}.epoch{stroke:var(--quiet);stroke-dasharray:2 5;opacity:.55}
.tick{fill:var(--quiet);font-size:12px;font-variant-numeric:tabular-nums}
.s0{--c:var(--c0)}.s1{--c:var(--c1)}.s2{--c:var(--c2)}.s3{--c:var(--c3)}.s4{--c:var(--c4)}.s5{--c:var(--c5)}
.line{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.band{fill:var(--c);opacity:.17}.dot{fill:var(--c)}.cross{fill:none;stroke:var(--bad);stroke-width:2}
.hover rect{fill:transparent}.hover rect:hover{fill:var(--quiet);opacity:.14}
section.card{margin-bottom:14px}.charts section.card{margin:0;min-width:0}.charts .all{grid-column:1/-1}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 0 6px 18px;border-top:1px solid var(--rule);font-weight:400;white-space:nowrap}
thead th{border:0;color:var(--quiet);font-size:13px}
th:first-child{text-align:left;padding-left:0;white-space:normal;overflow-wrap:anywhere}
tbody th{font-weight:600}
td.words{text-align:left;white-space:normal;overflow-wrap:anywhere}
pre{margin:0;font:13px/1.5 ui-monospace,"DejaVu Sans Mono",Menlo,monospace;overflow-x:auto}
footer{margin-top:18px}
@media print{body{background:none}.card,.figures>div{break-inside:avoid}}
)";

/// Tells who looks that the page has stopped changing although its run had not ended.
inline constexpr std::string_view page_script = R"(
const page=document.documentElement.dataset,age=()=>{const s=Date.now()/1000-page.updated;
if(s>Math.max(60,10*page.reload)){const e=document.getElementById("age");e.hidden=false;
e.textContent="No news for "+Math.round(s/60)+" min: the program may have ended without saying so."}};
if(page.reload){age();setInterval(age,5000)}
)";

}  // namespace penstock::detail
