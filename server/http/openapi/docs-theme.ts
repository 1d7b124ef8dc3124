/**
 * The colours of the pages at `/docs`. Swagger UI has a dark mode, which only its top bar switches on; these pages have no top
 * bar. Some of its colours do not reach a contrast of 4.5:1.
 */
const script = `
const dark = matchMedia('(prefers-color-scheme: dark)');
const show = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', show);
show();
`;

const styles = `
:root { color-scheme: light dark; }
.swagger-ui .opblock .opblock-summary-method { color: #000; text-shadow: none; }
.swagger-ui .info .title :is(small, small.version-stamp) { background: #4d5566; }

:root:not(.dark-mode) .swagger-ui :is(.info a, .info .url) { color: #1f5fb5; }
:root:not(.dark-mode) .swagger-ui .btn.authorize { border-color: #14703f; color: #14703f; }
:root:not(.dark-mode) .swagger-ui .btn.cancel { border-color: #b42318; color: #b42318; }
:root:not(.dark-mode) .swagger-ui .btn.execute { border-color: #1f5fb5; background: #1f5fb5; }
:root:not(.dark-mode) .swagger-ui :is(.parameter__in, [class$='-expand-deep-button']) { color: #59616b; }

html.dark-mode body { background: none; }
html.dark-mode .swagger-ui .header-col { color: inherit; }
html.dark-mode .swagger-ui .opblock .opblock-section-header .try-out__btn.cancel { border-color: #ff8a8a; color: #ff8a8a; }
`;

export const docsTheme = {
  js: [{ filename: 'scheme.js', content: script }],
  css: [{ filename: 'scheme.css', content: styles }],
};
