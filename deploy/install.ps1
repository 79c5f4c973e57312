# Installs torch2carton on Windows from the files of a release:
#
#   $env:TORCH2CARTON_RELEASE = 'ADDRESS'; .\install.ps1 [-Folder FOLDER]
#
# ADDRESS is where the files of the release are, FOLDER where the program goes. Nothing is installed if the checksum is another.
param([string]$Folder = (Join-Path $env:LOCALAPPDATA 'Programs\torch2carton'))
$ErrorActionPreference = 'Stop'

$version = '@VERSION@'
$release = $env:TORCH2CARTON_RELEASE
if (-not $release) { throw 'set TORCH2CARTON_RELEASE to the address of the files of the release' }
$name = "torch2carton-$version-x86_64-pc-windows-gnu"

$work = Join-Path ([IO.Path]::GetTempPath()) ([IO.Path]::GetRandomFileName())
New-Item -ItemType Directory -Path $work | Out-Null
try {
    foreach ($file in 'SHA256SUMS', "$name.zip") {
        Invoke-WebRequest -UseBasicParsing -Uri "$release/$file" -OutFile (Join-Path $work $file)
    }
    $line = Get-Content (Join-Path $work 'SHA256SUMS') | Where-Object { $_.EndsWith("  $name.zip") }
    $found = (Get-FileHash -Algorithm SHA256 (Join-Path $work "$name.zip")).Hash.ToLowerInvariant()
    if (-not $line -or $line.Split(' ')[0] -ne $found) {
        throw "$name.zip has the SHA-256 $found, which SHA256SUMS does not have for it; nothing was installed"
    }
    Expand-Archive -Path (Join-Path $work "$name.zip") -DestinationPath $work
    New-Item -ItemType Directory -Force -Path $Folder | Out-Null
    Copy-Item -Force (Join-Path $work "$name\torch2carton.exe") $Folder
} finally {
    Remove-Item -Recurse -Force $work
}
Write-Output "installed $(Join-Path $Folder 'torch2carton.exe')"
if (($env:PATH -split ';') -notcontains $Folder) { Write-Output "note: $Folder is not in PATH" }
