/** Markdown to HTML: links within the site, anchors as GitHub makes them, code with a class for the kind of each word. */
import markdownIt, { type Token } from 'markdown-it';
import { createCssVariablesTheme, createHighlighterCore } from 'shiki/core';
import { createJavaScriptRegexEngine } from 'shiki/engine/javascript';
import http from 'shiki/langs/http.mjs';
import ini from 'shiki/langs/ini.mjs';
import json from 'shiki/langs/json.mjs';
import nginx from 'shiki/langs/nginx.mjs';
import python from 'shiki/langs/python.mjs';
import shell from 'shiki/langs/shellscript.mjs';
import sql from 'shiki/langs/sql.mjs';
import tsx from 'shiki/langs/tsx.mjs';
import typescript from 'shiki/langs/typescript.mjs';
import yaml from 'shiki/langs/yaml.mjs';

export type Heading = { level: number; id: string; text: string };
/** A heading with the text below it, for the search. */
export type Passage = Heading & { body: string };
export type Rendered = { html: string; headings: Heading[]; passages: Passage[] };

/** Highlighting by TypeScript's grammar is also right for JavaScript. */
const languages: Record<string, string> = { sh: 'shellscript', bash: 'shellscript', js: 'typescript' };
const theme = createCssVariablesTheme({ name: 'guides' });

const md = markdownIt({ html: true });
export const { escapeHtml } = md.utils;

export type Renderer = (text: string, resolve: (url: string) => string | undefined) => Rendered;

/** `resolve` gives the address of a link; a link without one is shown as text. */
export async function createRenderer(): Promise<Renderer> {
  const highlighter = await createHighlighterCore({
    themes: [theme],
    langs: [http, ini, json, nginx, python, shell, sql, tsx, typescript, yaml],
    engine: createJavaScriptRegexEngine(),
  });
  const colored = (code: string, language: string) => {
    const lang = languages[language] ?? language;
    if (!highlighter.getLoadedLanguages().includes(lang)) return escapeHtml(code);
    return highlighter
      .codeToTokensBase(code, { lang, theme: theme.name ?? '' })
      .map((line) => line.map(({ content, color }) => word(content, color)).join(''))
      .join('\n');
  };
  md.renderer.rules.fence = (tokens, index) => {
    const { content = '', info = '' } = tokens[index] ?? {};
    return `<div class="code"><pre tabindex="0"><code>${colored(content.trimEnd(), info.trim())}</code></pre></div>\n`;
  };
  md.renderer.rules.code_inline = (tokens, index) => {
    const code = escapeHtml(tokens[index]?.content ?? '');
    const isLink = servedAddress.test(code) && tokens[index - 1]?.type !== 'link_open';
    return isLink ? `<a href="${code}"><code>${code}</code></a>` : `<code>${code}</code>`;
  };
  md.renderer.rules.html_block = (tokens, index) => withoutComments(tokens[index]?.content ?? '');
  md.renderer.rules.table_open = () => '<div class="table" tabindex="0"><table>\n';
  md.renderer.rules.table_close = () => '</table></div>\n';
  return (text, resolve) => {
    const tokens = md.parse(text, {});
    const passages = addAnchors(tokens);
    for (const { children } of tokens) resolveLinks(children ?? [], resolve);
    const headings = passages.map(({ level, id, text }) => ({ level, id, text }));
    return { html: md.renderer.render(tokens, md.options, {}), headings, passages };
  };
}

/** Addresses of the service that a browser can open; `/docs` redirects. */
const servedAddress = /^\/(llms\.txt|openapi\.json|docs|guides(\/[\w/.-]+)?)$/;

const word = (content: string, color = '') => {
  const kind = /--shiki-token-([\w-]+)/.exec(color)?.[1];
  return kind === undefined ? escapeHtml(content) : `<span class="is-${kind}">${escapeHtml(content)}</span>`;
};

/** Comments of the sources, such as the reason why a command is not run. */
const withoutComments = (html: string) => html.replace(/<!--.*?-->\s*/gs, '');

function addAnchors(tokens: Token[]): Passage[] {
  const passages: Passage[] = [];
  const used = new Map<string, number>();
  for (const [index, token] of tokens.entries()) {
    if (token.type === 'heading_open') {
      const text = textOf(tokens[index + 1]);
      const plain = anchorOf(text);
      const count = used.get(plain) ?? 0;
      used.set(plain, count + 1);
      const id = count === 0 ? plain : `${plain}-${count}`;
      token.attrSet('id', id);
      passages.push({ level: Number(token.tag.slice(1)), id, text, body: '' });
    } else if (tokens[index - 1]?.type !== 'heading_open') {
      const passage = passages.at(-1);
      if (passage !== undefined) passage.body += ` ${textOf(token)}`;
    }
  }
  return passages.map((passage) => ({ ...passage, body: passage.body.replace(/\s+/g, ' ').trim() }));
}

function textOf(token: Token | undefined): string {
  if (token?.type === 'fence') return token.content;
  if (token?.type !== 'inline') return '';
  return (token.children ?? [])
    .map(({ type, content }) =>
      type === 'text' || type === 'code_inline' ? content : type === 'softbreak' ? ' ' : '',
    )
    .join('');
}

const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\w\- ]/g, '')
    .replaceAll(' ', '-');

function resolveLinks(children: Token[], resolve: (url: string) => string | undefined): void {
  let isLinked = true;
  for (const token of children) {
    if (token.type === 'link_open') {
      const address = resolve(String(token.attrGet('href')));
      isLinked = address !== undefined;
      if (address !== undefined) token.attrSet('href', address);
    }
    if (!isLinked && /^link_/.test(token.type)) {
      token.tag = 'span';
      token.attrs = [];
    }
  }
}
