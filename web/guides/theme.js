// Before anything is painted, so that a dark page never flashes white. The dashboard keeps the choice under the same name.
let scheme = 'auto';
try {
  scheme = localStorage.getItem('mantine-color-scheme-value') ?? 'auto';
} catch {}
if (scheme === 'auto') scheme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
document.documentElement.dataset.mantineColorScheme = scheme;
