# Completion of ntx in fish. `ntx complete` knows what may follow (client/commands/complete.h).
function __ntx_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] complete -- $words[2..] $word 2>/dev/null)
        switch $line
            case :more
            case :files
                __fish_complete_path (string replace -r '^--[^=]*=' '' -- $word)
            case :gguf
                __fish_complete_suffix .gguf
            case :dirs
                __fish_complete_directories (string replace -r '^--[^=]*=' '' -- $word)
            case '*'
                echo $line
        end
    end
end
complete -c ntx -f -a '(__ntx_complete)'
