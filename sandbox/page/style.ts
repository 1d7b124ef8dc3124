/** What the overview adds to the sandbox's clothes. */
export const OVERVIEW_STYLE = `
main.wide { max-width: 70rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 0; font-size: .875rem; }
section { margin-top: 2.25rem; padding-top: 1.25rem; border-top: 1px solid var(--line); scroll-margin-top: 1rem; }
section > h2 { margin: 0; font-size: 1.1rem; }
section > p.quiet { margin-top: .15rem; max-width: 54rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(8rem, 1fr)); gap: .75rem; margin: 1.25rem 0 0; padding: 0; list-style: none; }
.figures li { padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 8px; }
.figures b { display: block; font-size: 1.25rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.figures span { color: var(--quiet); font-size: .8rem; }
.figures .hot { border-color: var(--warn); }
.figures .hot b { color: var(--warn); }
:root { --warn: #a33a1d; --warn-ground: #fbe9e3; --good-ground: #e3f1ea; }
@media (prefers-color-scheme: dark) { :root { --warn: #f2957b; --warn-ground: #3d211a; --good-ground: #1d3229; } }
.alert { margin: 1rem 0 0; padding: .6rem .8rem; border-radius: 8px; background: var(--warn-ground); color: var(--warn); font-weight: 600; }
.fields { display: flex; flex-wrap: wrap; gap: .6rem; align-items: flex-end; margin-top: .9rem; }
.fields label { display: flex; flex-direction: column; gap: .2rem; flex: 1 1 9rem; min-width: 0; color: var(--quiet); font-size: .8rem; }
.fields label.grow { flex-grow: 3; flex-basis: 16rem; }
.fields label.whole { flex-basis: 100%; }
.fields label.short { flex: 0 1 7rem; }
.fields input, .fields select, .fields label > * { flex: none; width: 100%; height: 2.4rem; color: var(--ink); font-size: .9rem; }
.fields .button { flex: none; height: 2.4rem; padding-block: 0; }
.buttons { display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; }
.buttons form { display: flex; gap: .4rem; align-items: center; }
.button.small { padding: .25rem .6rem; font-size: .8rem; border-radius: 6px; }
.buttons select { max-width: 100%; }
.buttons select, .buttons input { flex: none; width: auto; padding: .25rem .4rem; font-size: .8rem; border-radius: 6px; }
.buttons input[type=number] { width: 5rem; }
.button:hover { border-color: var(--accent); }
.button.danger:hover { border-color: var(--warn); color: var(--warn); }
.cards > * { min-width: 0; }
.cards { display: grid; grid-template-columns: minmax(0, 1fr); gap: .75rem; margin-top: .9rem; }
.card { padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 10px; }
.card.hot { border-left: 3px solid var(--warn); }
.card .head { display: flex; flex-wrap: wrap; gap: .25rem .75rem; align-items: baseline; margin-bottom: .5rem; }
.card .head > * { min-width: 0; overflow-wrap: anywhere; }
.card small { color: var(--quiet); overflow-wrap: anywhere; }
.tag { display: inline-block; padding: 0 .5rem; border-radius: 99px; background: var(--good-ground); color: var(--accent); font-size: .75rem; font-weight: 600; }
td .tag { white-space: nowrap; }
.tag.bad { background: var(--warn-ground); color: var(--warn); }
.empty { margin: .9rem 0 0; padding: 1rem; border: 1px dashed var(--line); border-radius: 10px; color: var(--quiet); text-align: center; }
.scopes { display: flex; flex-wrap: wrap; gap: .25rem; }
.scopes code { padding: 0 .4rem; border: 1px solid var(--line); border-radius: 6px; overflow-wrap: anywhere; }
table { margin-top: .6rem; }
td.nowrap, td code { white-space: nowrap; }
.card > form > .button.small { margin-top: .6rem; }
details { margin-top: .9rem; }
summary { cursor: pointer; color: var(--accent); font-size: .9rem; }
@media (max-width: 30rem) {
  .fields .button { width: 100%; }
  .buttons form { flex-wrap: wrap; }
}
`;
